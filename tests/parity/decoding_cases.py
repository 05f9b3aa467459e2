"""Ways to write, in our words and in those of transformers; and every published class that can write."""

import itertools
from dataclasses import dataclass, fields, replace

import transformers
from parity.grid import GRID, SIZES
from parity.oracle import Case

from regard.generation import (
    Beam,
    EndAtLimit,
    Forbid,
    Greedy,
    MinLength,
    NoRepeat,
    RepetitionPenalty,
    Settings,
    Until,
)

ENDS, LIMIT = (2, 7, 11, 19, 23), 11
"""Several ends, so that random networks end some texts early and some never."""
FORBIDDEN = [*([token] for token in range(24, 34)), [12, 13], [5, 5]]
RULES = {
    "none": ({}, ()),
    "repetition penalty": (dict(repetition_penalty=1.7), (RepetitionPenalty(1.7),)),
    "praise of repetition": (dict(repetition_penalty=0.6), (RepetitionPenalty(0.6),)),
    "no repeated word": (dict(no_repeat_ngram_size=1), (NoRepeat(1),)),
    "no repeated pair": (dict(no_repeat_ngram_size=2), (NoRepeat(2),)),
    "no repeated triple": (dict(no_repeat_ngram_size=3), (NoRepeat(3),)),
    "minimum": (dict(min_new_tokens=6), (MinLength(6, ENDS),)),
    "forbidden": (dict(bad_words_ids=FORBIDDEN), (Forbid(FORBIDDEN),)),
    "forced end": (dict(forced_eos_token_id=2), (EndAtLimit(2),)),
    "several": (
        dict(repetition_penalty=1.2, no_repeat_ngram_size=3, min_new_tokens=3),
        (RepetitionPenalty(1.2), NoRepeat(3), MinLength(3, ENDS)),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to write."""

    size: int = 1
    """Of the beam; 1 is greedy."""
    penalty: float = 1.0
    until: Until = Until.UNLIKELY
    rule: str = "none"
    limit: int = LIMIT
    ends: tuple = ENDS

    def ours(self):
        beam = Beam(size=self.size, length_penalty=self.penalty, until=self.until, best=self.size)
        search = beam if self.size > 1 else Greedy()
        return Settings(search=search, rules=RULES[self.rule][1], end=self.ends, limit=self.limit)

    def theirs(self):
        beam = dict(num_return_sequences=self.size, length_penalty=self.penalty, early_stopping=self.until.value)
        forced = dict(forced_bos_token_id=None, forced_eos_token_id=None)
        common = dict(num_beams=self.size, max_new_tokens=self.limit, eos_token_id=list(self.ends), do_sample=False)
        return common | forced | (beam if self.size > 1 else {}) | RULES[self.rule][0]

    def values(self):
        """What it is a trial of."""
        beams_only = {"penalty", "until"} if self.size == 1 else set()
        return {(field.name, getattr(self, field.name)) for field in fields(self) if field.name not in beams_only}


GREEDY = [Way(rule=rule) for rule in RULES]
BEAMS = [
    Way(size=size, penalty=penalty, until=until)
    for size, penalty, until in itertools.product((2, 3, 5), (0.0, 0.6, 1.0, 2.0, -0.7), Until)
]
RULED = [Way(size=3, rule=rule, until=until) for rule, until in itertools.product(list(RULES)[1:], Until)]
LENGTHS = [
    *(Way(limit=limit) for limit in (1, 4)),
    *(Way(size=3, limit=limit, until=until) for limit, until in itertools.product((1, 4), Until)),
    Way(rule="minimum", limit=6),
    *(Way(size=3, rule="minimum", limit=6, until=until) for until in Until),
]
ONE_END = [Way(ends=(2,)), *(Way(size=4, until=until, ends=(2,)) for until in Until)]
WAYS = [*GREEDY, *BEAMS, *RULED, *LENGTHS, *ONE_END]


def writes(case):
    """Whether it can be asked to write: BERT and its like only where their config says that they look back."""
    kind = getattr(transformers, case.architecture)
    looks_both_ways = case.family in ("bert", "roberta", "electra", "roformer") and not case.sizes.get("is_decoder")
    return hasattr(kind, "can_generate") and kind.can_generate() and not looks_both_ways


def _for_writing(case):
    """Sizes with which transformers can write what we can."""
    match case.architecture:
        case "T5ForConditionalGeneration":  # it makes a cache of as many layers as the encoder has: let them be as many
            return replace(case, sizes=case.sizes | dict(num_layers=3))
        case "BartForCausalLM" | "MBartForCausalLM" | "MarianForCausalLM":  # the same, though there is no encoder
            return replace(case, sizes=case.sizes | dict(encoder_layers=3))
        case "RobertaForCausalLM":  # room for the longest text: the first two positions are for padding
            return replace(case, sizes=case.sizes | dict(max_position_embeddings=21))
    return case


WRITERS = {str(case): _for_writing(case) for case in GRID if writes(case)} | {
    "2017": Case("marian", "MarianMTModel", SIZES["marian"] | dict(activation_function="relu"))
}
