"""Token for token what transformers' `generate` writes, in float64: every class that can write × every way to write.

Each text is given to transformers alone and to us in one batch, so this also shows that company changes nothing.
A difference between two texts whose scores are closer than 1e-9 is a tie: it is left out, and counted. How many texts
were compared, and how many ties there were, is said at the end of a run (`conftest.py`).
"""

import contextlib
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
import transformers.generation.utils as their_utils
from parity.decoding_cases import WAYS, WRITERS, Way
from parity.oracle import Case, _Float64, exactly, oracle, ours

import regard
from regard.families.registry import FAMILIES
from regard.generation import Begin, Given, Stopped, Until, generate
from regard.transformer.network import EncoderDecoder

TIE = 1e-9
EACH = 2
"""Ways that each class is asked to write in by default; all of them are the slow test."""


def possible(name):
    """All ways in which transformers can write with a class."""
    one_row = name == "XLNetLMHeadModel-uni"  # its mask does not fit several rows there
    return [way for way in WAYS if way.size == 1 or not one_row]


def chosen(name):
    """Some ways, others for each class, as if by chance but always the same."""
    ways = possible(name)
    mixed = random.Random(12).sample(ways, len(ways))
    first = list(WRITERS).index(name) * EACH % len(ways)
    return mixed[first : first + EACH]


@contextlib.contextmanager
def in_double(family):
    """transformers' families and its search, computing in float64 throughout."""
    with exactly(family):
        their_utils.torch = _Float64()
        try:
            yield
        finally:
            their_utils.torch = torch


@pytest.fixture(scope="module", params=WRITERS)
def writer(request, tmp_path_factory):
    case = WRITERS[request.param]
    model = oracle(case)
    network, _ = ours(case, model, tmp_path_factory.mktemp("model"))
    return request.param, case, model, network


def texts(network):
    draw = random.Random(5)
    if isinstance(network, EncoderDecoder):
        return [Given([3], [*(draw.randrange(3, 47) for _ in range(n)), 2]) for n in (4, 9, 1)]
    return [Given([draw.randrange(3, 47) for _ in range(n)]) for n in (3, 7, 1)]


def their_answer(case, model, given, way, **more):
    """Their texts without the prompt, and their scores, where a search has them."""
    encoder = given.source is not None
    named = {"decoder_start_token_id": given.prompt[0]} if encoder else {}
    if case.family == "xlnet":  # what is written changes what earlier tokens mean, so all is read again
        named |= dict(use_mems=False, use_cache=False)
    tokens = torch.tensor([given.source if encoder else given.prompt])
    if case.family == "roberta":  # its `generate` counts positions from 0, though the network, asked alone, does from 2
        named |= dict(position_ids=torch.arange(2, 2 + len(given.prompt))[None])
    with torch.no_grad(), in_double(case.family):
        output = model.generate(
            tokens, attention_mask=torch.ones_like(tokens), pad_token_id=1, return_dict_in_generate=True,
            output_scores=True, **way.theirs() | named | more,
        )  # fmt: skip
    scores = output.sequences_scores.tolist() if "sequences_scores" in output else [None]
    return [
        (until_end(row[len(given.prompt) :], way.ends), score)
        for row, score in zip(output.sequences.tolist(), scores, strict=True)
        if score is None or score > -1e8
    ]


def until_end(tokens, ends):
    """What was written, without the padding behind it."""
    at = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
    return tuple(tokens[: at + 1])


def compare(writer, way, settings=None, given=None, **more):
    """How many texts were compared, how many hypotheses they had, and how many of these were ties."""
    name, case, model, network = writer
    given, counts = given or texts(network), Counter()
    for text, result in zip(given, generate(network, given, settings or way.ours()), strict=True):
        expected = their_answer(case, model, text, way, **more)
        mine = [(found.tokens, found.score) for found in result.hypotheses]
        assert len(mine) == len(expected), f"{name}, {way}"
        for (tokens, score), (their_tokens, their_score) in zip(mine, expected, strict=True):
            assert their_score is None or abs(score - their_score) < TIE, f"{name}, {way}"
            if tokens != their_tokens and their_score is not None:
                counts["ties"] += 1
            else:
                assert tokens == their_tokens, f"{name}, {way}"
        for found in result.hypotheses:
            ended = found.tokens[-1] in way.ends and len(found.tokens) < way.limit
            assert (found.stopped is Stopped.END) >= ended
            assert (found.stopped is Stopped.LENGTH) <= (len(found.tokens) == way.limit)
        counts.update(texts=1, hypotheses=len(mine))
    return counts


def record(counts, record_property):
    """For the line at the end of the run."""
    for what in ("texts", "hypotheses", "ties"):
        record_property(f"generation: {what}", counts[what])


def compare_all(writer, ways, record_property):
    counts = sum((compare(writer, way) for way in ways), Counter())
    record(counts, record_property)
    assert counts["texts"] == 3 * len(ways) > 0
    assert counts["ties"] <= 0.01 * counts["hypotheses"]


def test_a_choice_of_ways(writer, record_property):
    compare_all(writer, chosen(writer[0]), record_property)


@pytest.mark.slow
def test_all_ways(writer, record_property):
    compare_all(writer, possible(writer[0]), record_property)


def test_the_choices_try_every_value_in_several_classes():
    tried = Counter(value for name in WRITERS for value in set().union(*(way.values() for way in chosen(name))))
    assert min(tried.values()) >= 2
    assert set(tried) == {value for way in WAYS for value in way.values()}


def test_no_class_that_writes_is_left_out():
    writing = {name for name, family in FAMILIES.items() if name != "transfo-xl" and _any_writes(family)}
    assert {case.family for case in WRITERS.values()} == writing


def _any_writes(family):
    kinds = (getattr(transformers, name, None) for name in family.architectures)
    return any(kind is not None and hasattr(kind, "can_generate") and kind.can_generate() for kind in kinds)


@pytest.mark.parametrize("size", [1, 3], ids=["greedy", "beam"])
def test_a_forced_beginning(tmp_path, size):
    """mBART's language: forced behind the token that starts a target."""
    case = WRITERS["MBartForConditionalGeneration"]
    model, way = oracle(case), Way(size=size)
    network, _ = ours(case, model, tmp_path)
    settings = replace(way.ours(), rules=(Begin([31]),))
    counts = compare(("mBART", case, model, network), way, settings, forced_bos_token_id=31)
    assert (counts["texts"], counts["ties"]) == (3, 0)
    assert all(result.tokens[0] == 31 for result in generate(network, texts(network), settings))


STORIES = [
    Way(),
    Way(rule="no repeated triple"),
    Way(rule="repetition penalty"),
    Way(size=4),
    Way(size=4, rule="no repeated pair", until=Until.FULL),
    Way(size=3, penalty=0.2, until=Until.IMPOSSIBLE),
]
PROMPTS = [Given([1, 403, 407, 261, 378]), Given([1]), Given([1, 400, 300])]


@pytest.mark.parametrize(
    ("name", "limit", "ways"),
    [
        ("stories260K", 40, STORIES[:5:2]),
        ("stories15M", 12, STORIES[:4:3]),
        pytest.param("stories260K", 250, STORIES, marks=pytest.mark.slow),
        pytest.param("stories15M", 100, STORIES, marks=pytest.mark.slow),
    ],
)
def test_trained_weights_tell_the_same_stories(name, limit, ways, record_property):
    """Both end a story with 1, the token that begins it."""
    if "REGARD_DATA" not in os.environ:
        pytest.skip("REGARD_DATA is not set")
    path = Path(os.environ["REGARD_DATA"]) / "weights" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    network = regard.load(path, dtype=torch.float64).network
    with in_double("llama"):
        model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float64)
    trained = name, Case("llama", "LlamaForCausalLM"), model, network
    counts = sum((compare(trained, replace(way, limit=limit, ends=(1,)), given=PROMPTS) for way in ways), Counter())
    record(counts, record_property)
    assert counts["ties"] == 0
