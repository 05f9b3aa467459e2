"""Token for token what transformers' `generate` writes, in float64: families × settings, on random networks.

Each text is given to transformers alone and to us in one batch, so this also shows that company changes nothing.
A difference between two texts whose scores are closer than 1e-9 is a tie: it is left out, and counted.
"""

import contextlib
import itertools
import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
import transformers.generation.utils as their_utils
from parity.grid import SIZES
from parity.oracle import Case, _Float64, exactly, oracle, ours

import regard
from regard.generation import (
    Beam,
    Begin,
    EndAtLimit,
    Forbid,
    Given,
    Greedy,
    MinLength,
    NoRepeat,
    RepetitionPenalty,
    Settings,
    Stopped,
    Until,
    generate,
)
from regard.transformer.network import EncoderDecoder

ENDS, LIMIT, TIE = (2, 7, 11, 19, 23), 11, 1e-9
"""Several ends, so that random networks end some texts early and some never."""
FAMILIES = {
    "GPT-2": Case("gpt2", "GPT2LMHeadModel", SIZES["gpt2"]),
    "Llama": Case("llama", "LlamaForCausalLM", SIZES["llama"]),
    "GPT": Case("openai-gpt", "OpenAIGPTLMHeadModel", SIZES["openai-gpt"]),
    "CTRL": Case("ctrl", "CTRLLMHeadModel", SIZES["ctrl"]),
    "BART": Case("bart", "BartForConditionalGeneration", SIZES["bart"]),
    "mBART": Case("mbart", "MBartForConditionalGeneration", SIZES["mbart"]),
    # Its cache in transformers counts the encoder's layers.
    "T5": Case("t5", "T5ForConditionalGeneration", SIZES["t5"] | dict(num_layers=3)),
    "Marian": Case("marian", "MarianMTModel", SIZES["marian"]),
    "2017": Case("marian", "MarianMTModel", SIZES["marian"] | dict(activation_function="relu")),
}


@dataclass(frozen=True)
class Setting:
    """One way to write, in both languages."""

    name: str
    theirs: dict
    search: object = Greedy()
    rules: tuple = ()
    ends: tuple = ENDS


def beam(size, penalty, until):
    theirs = dict(num_beams=size, num_return_sequences=size, length_penalty=penalty, early_stopping=until.value)
    return theirs, Beam(size=size, length_penalty=penalty, until=until, best=size)


def beams(size, penalty, until):
    return Setting(f"beam {size}, penalty {penalty}, until {until.name}", *beam(size, penalty, until))


RULES = {
    "no rule": ({}, ()),
    "repetition penalty": (dict(repetition_penalty=1.7), (RepetitionPenalty(1.7),)),
    "praise of repetition": (dict(repetition_penalty=0.6), (RepetitionPenalty(0.6),)),
    "no repeated word": (dict(no_repeat_ngram_size=1), (NoRepeat(1),)),
    "no repeated pair": (dict(no_repeat_ngram_size=2), (NoRepeat(2),)),
    "minimum": (dict(min_new_tokens=6), (MinLength(6, ENDS),)),
    "forbidden": (
        dict(bad_words_ids=[[n] for n in range(24, 34)] + [[12, 13], [5, 5]]),
        (Forbid([*[[n] for n in range(24, 34)], [12, 13], [5, 5]]),),
    ),
    "forced end": (dict(forced_eos_token_id=2), (EndAtLimit(2),)),
    "several": (
        dict(repetition_penalty=1.2, no_repeat_ngram_size=3, min_new_tokens=3),
        (RepetitionPenalty(1.2), NoRepeat(3), MinLength(3, ENDS)),
    ),
}
TWO = [(dict(num_beams=1), Greedy()), beam(3, 1.0, Until.UNLIKELY)]
BEAMS = [beams(*choice) for choice in itertools.product((2, 3, 5), (0.0, 0.6, 1.0, 2.0, -0.7), Until)]
GREEDY = [Setting(f"greedy, {name}", theirs, rules=rules) for name, (theirs, rules) in RULES.items()]
RULED = [
    Setting(f"beam 3, {name}, until {until.name}", theirs | one, search, rules)
    for name, (theirs, rules) in list(RULES.items())[1:]
    for until in Until
    for one, search in [beam(3, 1.0, until)]
]
ONE_END = [Setting("greedy, one end", {}, ends=(2,)), Setting("beam 4, one end", *beam(4, 1.0, Until.FULL), ends=(2,))]
ALL = [*GREEDY, *ONE_END, *BEAMS, *RULED]


def chosen(family, every=9):
    """Some of all settings, others for each family; all of them are the slow test."""
    return ALL[list(FAMILIES).index(family) % every :: every]


@contextlib.contextmanager
def in_double(family):
    """transformers' families and its search, computing in float64 throughout."""
    with exactly(family):
        their_utils.torch = _Float64()
        try:
            yield
        finally:
            their_utils.torch = torch


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    case = FAMILIES[request.param]
    model = oracle(case)
    network, _ = ours(case, model, tmp_path_factory.mktemp("model"))
    return request.param, case, model, network


def texts(network):
    draw = random.Random(5)
    if isinstance(network, EncoderDecoder):
        return [Given([3], [*(draw.randrange(3, 47) for _ in range(n)), 2]) for n in (4, 9, 1)]
    return [Given([draw.randrange(3, 47) for _ in range(n)]) for n in (3, 7, 1)]


def their_answer(case, model, given, setting, limit=LIMIT):
    encoder = given.source is not None
    named = {"decoder_start_token_id": given.prompt[0]} if encoder else {}
    tokens = torch.tensor([given.source if encoder else given.prompt])
    with torch.no_grad(), in_double(case.family):
        output = model.generate(
            tokens, **named, attention_mask=torch.ones_like(tokens), max_new_tokens=limit, do_sample=False,
            eos_token_id=list(setting.ends), pad_token_id=1, return_dict_in_generate=True, output_scores=True,
            **{"forced_bos_token_id": None, "forced_eos_token_id": None, "num_beams": 1} | setting.theirs,
        )  # fmt: skip
    scores = output.sequences_scores.tolist() if "sequences_scores" in output else [None]
    return [
        (until_end(row[len(given.prompt) :], setting.ends), score)
        for row, score in zip(output.sequences.tolist(), scores, strict=True)
        if score is None or score > -1e8
    ]


def until_end(tokens, ends):
    """What was written, without the padding behind it."""
    at = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
    return tuple(tokens[: at + 1])


def compare(family, setting):
    """How many texts were compared, and how many of them were ties."""
    name, case, model, network = family
    given = texts(network)
    settings = Settings(search=setting.search, end=setting.ends, rules=setting.rules, limit=LIMIT)
    ties = 0
    for text, result in zip(given, generate(network, given, settings), strict=True):
        expected = their_answer(case, model, text, setting)
        mine = [(found.tokens, found.score) for found in result.hypotheses]
        assert len(mine) == len(expected), f"{name}, {setting.name}"
        for (tokens, score), (their_tokens, their_score) in zip(mine, expected, strict=True):
            if tokens != their_tokens and their_score is not None and abs(score - their_score) < TIE:
                ties += 1
                continue
            assert tokens == their_tokens, f"{name}, {setting.name}"
            assert their_score is None or abs(score - their_score) < TIE, f"{name}, {setting.name}"
        for found in result.hypotheses:
            ended = found.tokens[-1] in setting.ends and len(found.tokens) < LIMIT
            assert (found.stopped is Stopped.END) >= ended
            assert (found.stopped is Stopped.LENGTH) <= (len(found.tokens) == LIMIT)
    return len(given), ties


def test_a_choice_of_settings(family):
    counts = [compare(family, setting) for setting in chosen(family[0])]
    assert sum(ties for _, ties in counts) <= 0.01 * sum(all_of for all_of, _ in counts)


@pytest.mark.slow
def test_all_settings(family):
    counts = [compare(family, setting) for setting in ALL]
    compared, ties = (sum(column) for column in zip(*counts, strict=True))
    print(f"{family[0]}: {compared} texts, {ties} ties")
    assert ties <= 0.01 * compared


def test_the_choices_leave_nothing_out():
    names = {setting.name for family in FAMILIES for setting in chosen(family)}
    assert names == {setting.name for setting in ALL}


@pytest.mark.parametrize("search", TWO, ids=["greedy", "beam"])
def test_a_forced_beginning(tmp_path, search):
    """mBART's language: forced behind the token that starts a target."""
    case = FAMILIES["mBART"]
    model = oracle(case)
    network, _ = ours(case, model, tmp_path)
    theirs, mine = search
    setting = Setting("begin", theirs | dict(forced_bos_token_id=31), mine, (Begin([31]),))
    compared, ties = compare(("mBART", case, model, network), setting)
    assert (compared, ties) == (3, 0)
    for result in generate(network, texts(network), Settings(search=mine, rules=(Begin([31]),), limit=LIMIT)):
        assert result.tokens[0] == 31


@pytest.mark.parametrize("search", TWO, ids=["greedy", "beam"])
def test_xlnet_guesses_what_comes_next(tmp_path, search):
    """Without memory, all is read again for every token, for what was written changes what earlier tokens mean."""
    case = Case("xlnet", "XLNetLMHeadModel", SIZES["xlnet"])
    model = oracle(case)
    network, _ = ours(case, model, tmp_path)
    theirs, mine = search
    setting = Setting("xlnet", theirs | dict(use_mems=False, use_cache=False), mine)
    assert compare(("XLNet", case, model, network), setting) == (3, 0)


STORIES = [
    Setting("greedy", {}, ends=(1,)),
    Setting("greedy, no repeated triple", dict(no_repeat_ngram_size=3), rules=(NoRepeat(3),), ends=(1,)),
    Setting("beam 4", *beam(4, 1.0, Until.UNLIKELY), ends=(1,)),
    Setting("beam 3, short", *beam(3, 0.2, Until.FULL), ends=(1,)),
]


@pytest.mark.parametrize("name", ["stories260K", "stories15M"])
def test_trained_weights_tell_the_same_stories(name):
    if "REGARD_DATA" not in os.environ:
        pytest.skip("REGARD_DATA is not set")
    path = Path(os.environ["REGARD_DATA"]) / "weights" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    network = regard.load(path, dtype=torch.float64).network
    with in_double("llama"):
        model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float64)
    given = [Given([1, 403, 407, 261, 378]), Given([1]), Given([1, 400, 300])]
    limit = 70 if name == "stories260K" else 12
    for setting in STORIES:
        settings = Settings(search=setting.search, end=setting.ends, rules=setting.rules, limit=limit)
        for text, result in zip(given, generate(network, given, settings), strict=True):
            theirs = their_answer(Case("llama", "LlamaForCausalLM"), model, text, setting, limit)
            assert [found.tokens for found in result.hypotheses] == [tokens for tokens, _ in theirs], setting.name
