"""Decoding options, as options of regard and of transformers; and every published class that can generate."""

import itertools
from dataclasses import dataclass, fields, replace

import transformers
from parity.grid import GRID, SIZES
from parity.oracle import Case

from regard.generation import (
    BeamSearch,
    DecodingOptions,
    EarlyStopping,
    ForcedEos,
    GreedySearch,
    MinNewTokens,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressSequences,
)

EOS_TOKEN_IDS, MAX_NEW_TOKENS = (2, 7, 11, 19, 23), 11
"""Several EOS tokens, so that random networks end some outputs early and some not at all."""
SUPPRESSED = [*([token] for token in range(24, 34)), [12, 13], [5, 5]]
PROCESSORS = {
    "none": ({}, ()),
    "repetition penalty": (dict(repetition_penalty=1.7), (RepetitionPenalty(1.7),)),
    "repetition penalty below 1": (dict(repetition_penalty=0.6), (RepetitionPenalty(0.6),)),
    "no repeated unigram": (dict(no_repeat_ngram_size=1), (NoRepeatNgram(1),)),
    "no repeated bigram": (dict(no_repeat_ngram_size=2), (NoRepeatNgram(2),)),
    "no repeated trigram": (dict(no_repeat_ngram_size=3), (NoRepeatNgram(3),)),
    "min_new_tokens": (dict(min_new_tokens=6), (MinNewTokens(6, EOS_TOKEN_IDS),)),
    "suppressed": (dict(bad_words_ids=SUPPRESSED), (SuppressSequences(SUPPRESSED),)),
    "forced EOS": (dict(forced_eos_token_id=2), (ForcedEos(2),)),
    "several": (
        dict(repetition_penalty=1.2, no_repeat_ngram_size=3, min_new_tokens=3),
        (RepetitionPenalty(1.2), NoRepeatNgram(3), MinNewTokens(3, EOS_TOKEN_IDS)),
    ),
}


@dataclass(frozen=True, kw_only=True)
class DecodingCase:
    """One set of decoding options."""

    beam: int = 1
    """Beam size; 1 is greedy search."""
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC
    processor: str = "none"
    max_new_tokens: int = MAX_NEW_TOKENS
    eos_token_ids: tuple = EOS_TOKEN_IDS

    def ours(self):
        beam_search = BeamSearch(
            beam=self.beam,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            n_best=self.beam,
        )
        return DecodingOptions(
            search=beam_search if self.beam > 1 else GreedySearch(),
            logits_processors=PROCESSORS[self.processor][1],
            eos_token_ids=self.eos_token_ids,
            max_new_tokens=self.max_new_tokens,
        )

    def theirs(self):
        beam_search = dict(
            num_return_sequences=self.beam,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping.value,
        )
        common = dict(
            num_beams=self.beam,
            max_new_tokens=self.max_new_tokens,
            eos_token_id=list(self.eos_token_ids),
            do_sample=False,
            forced_bos_token_id=None,
            forced_eos_token_id=None,
        )
        return common | (beam_search if self.beam > 1 else {}) | PROCESSORS[self.processor][0]

    def values(self):
        """The values that the case tests, as pairs of name and value."""
        beam_only = {"length_penalty", "early_stopping"} if self.beam == 1 else set()
        return {(field.name, getattr(self, field.name)) for field in fields(self) if field.name not in beam_only}


GREEDY = [DecodingCase(processor=processor) for processor in PROCESSORS]
BEAMS = [
    DecodingCase(beam=beam, length_penalty=penalty, early_stopping=early_stopping)
    for beam, penalty, early_stopping in itertools.product((2, 3, 5), (0.0, 0.6, 1.0, 2.0, -0.7), EarlyStopping)
]
PROCESSED_BEAMS = [
    DecodingCase(beam=3, processor=processor, early_stopping=early_stopping)
    for processor, early_stopping in itertools.product(list(PROCESSORS)[1:], EarlyStopping)
]
LENGTHS = [
    *(DecodingCase(max_new_tokens=length) for length in (1, 4)),
    *(
        DecodingCase(beam=3, max_new_tokens=length, early_stopping=early_stopping)
        for length, early_stopping in itertools.product((1, 4), EarlyStopping)
    ),
    DecodingCase(processor="min_new_tokens", max_new_tokens=6),
    *(
        DecodingCase(beam=3, processor="min_new_tokens", max_new_tokens=6, early_stopping=early_stopping)
        for early_stopping in EarlyStopping
    ),
]
ONE_EOS = [
    DecodingCase(eos_token_ids=(2,)),
    *(DecodingCase(beam=4, early_stopping=early_stopping, eos_token_ids=(2,)) for early_stopping in EarlyStopping),
]
DECODING_CASES = [*GREEDY, *BEAMS, *PROCESSED_BEAMS, *LENGTHS, *ONE_EOS]


def can_generate(case):
    """Whether transformers can generate with the class: with BERT and its variants only if they are causal."""
    kind = getattr(transformers, case.architecture)
    encoders = ("bert", "roberta", "xlm-roberta", "electra", "roformer")
    bidirectional = case.family in encoders and not case.sizes.get("is_decoder")
    return hasattr(kind, "can_generate") and kind.can_generate() and not bidirectional


def _with_generation_sizes(case):
    """Sizes with which transformers can generate the same as regard."""
    match case.architecture:
        case "T5ForConditionalGeneration":  # transformers' cache has as many layers as the encoder, so make them equal
            return replace(case, sizes=case.sizes | dict(num_layers=3))
        case "BartForCausalLM" | "MBartForCausalLM" | "MarianForCausalLM":  # the same, though there is no encoder
            return replace(case, sizes=case.sizes | dict(encoder_layers=3))
        case "RobertaForCausalLM" | "XLMRobertaForCausalLM":
            # positions for the longest sequence; the first two are reserved for padding
            return replace(case, sizes=case.sizes | dict(max_position_embeddings=21))
    return case


GENERATIVE_CASES = {str(case): _with_generation_sizes(case) for case in GRID if can_generate(case)} | {
    "2017": Case("marian", "MarianMTModel", SIZES["marian"] | dict(activation_function="relu"))
}
