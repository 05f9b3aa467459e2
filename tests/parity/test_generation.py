"""Token for token the same output as transformers' `generate`, in float64: every generative class × decoding options.

transformers gets each input alone, regard gets all of them in one batch, so this also shows that results are
independent of the batch. A difference between two hypotheses whose scores are closer than 1e-9 is a tie: it is skipped
and counted. The numbers of compared texts and of ties are reported at the end of a run (`conftest.py`).
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
from parity.decoding_cases import DECODING_CASES, GENERATIVE_CASES, DecodingCase
from parity.oracle import Case, _Float64, exactly, oracle, ours

import regard
from regard.families.registry import FAMILIES
from regard.generation import EarlyStopping, ForcedPrefix, Inputs, StopReason, generate
from regard.transformer.network import EncoderDecoder

TIE = 1e-9
CASES_PER_CLASS = 2
"""Number of decoding cases for each class by default; the slow test has all of them."""


def possible(name):
    """All decoding cases that transformers supports for a class."""
    only_greedy = name == "XLNetLMHeadModel-uni"  # in transformers its mask does not fit several beams
    return [decoding for decoding in DECODING_CASES if decoding.beam == 1 or not only_greedy]


def chosen(name):
    """A fixed random choice of decoding cases, different for each class."""
    cases = possible(name)
    shuffled = random.Random(12).sample(cases, len(cases))
    first = list(GENERATIVE_CASES).index(name) * CASES_PER_CLASS % len(cases)
    return shuffled[first : first + CASES_PER_CLASS]


@contextlib.contextmanager
def in_double(family):
    """Make transformers compute in float64 throughout, networks and search."""
    with exactly(family):
        their_utils.torch = _Float64()
        try:
            yield
        finally:
            their_utils.torch = torch


@pytest.fixture(scope="module", params=GENERATIVE_CASES)
def tested(request, tmp_path_factory):
    case = GENERATIVE_CASES[request.param]
    model = oracle(case)
    network, _ = ours(case, model, tmp_path_factory.mktemp("model"))
    return request.param, case, model, network


def make_inputs(network):
    rng = random.Random(5)
    if isinstance(network, EncoderDecoder):
        return [Inputs([3], [*(rng.randrange(3, 47) for _ in range(n)), 2]) for n in (4, 9, 1)]
    return [Inputs([rng.randrange(3, 47) for _ in range(n)]) for n in (3, 7, 1)]


def their_hypotheses(case, model, inputs, decoding, **options):
    """The output tokens of transformers without the prompt, and their scores in a beam search."""
    encoder = inputs.source is not None
    arguments = {"decoder_start_token_id": inputs.prompt[0]} if encoder else {}
    if case.family == "xlnet":  # new tokens change the hidden states of earlier ones, so all are computed again
        arguments |= dict(use_mems=False, use_cache=False)
    tokens = torch.tensor([inputs.source if encoder else inputs.prompt])
    if case.family in ("roberta", "xlm-roberta"):  # its `generate` counts positions from 0, but its forward pass from 2
        arguments |= dict(position_ids=torch.arange(2, 2 + len(inputs.prompt))[None])
    with torch.no_grad(), in_double(case.family):
        output = model.generate(
            tokens, attention_mask=torch.ones_like(tokens), pad_token_id=1, return_dict_in_generate=True,
            output_scores=True, **decoding.theirs() | arguments | options,
        )  # fmt: skip
    scores = output.sequences_scores.tolist() if "sequences_scores" in output else [None]
    return [
        (until_eos(row[len(inputs.prompt) :], decoding.eos_token_ids), score)
        for row, score in zip(output.sequences.tolist(), scores, strict=True)
        if score is None or score > -1e8
    ]


def until_eos(tokens, eos_token_ids):
    """The tokens up to the EOS token, without padding."""
    end = next((position for position, token in enumerate(tokens) if token in eos_token_ids), len(tokens))
    return tuple(tokens[: end + 1])


def compare(tested, decoding, options=None, inputs=None, **their_options):
    """Compare all outputs; return the numbers of texts, of hypotheses and of ties."""
    name, case, model, network = tested
    inputs, counts = inputs or make_inputs(network), Counter()
    for each, result in zip(inputs, generate(network, inputs, options or decoding.ours()), strict=True):
        expected = their_hypotheses(case, model, each, decoding, **their_options)
        ours_ = [(hypothesis.tokens, hypothesis.score) for hypothesis in result.hypotheses]
        assert len(ours_) == len(expected), f"{name}, {decoding}"
        for (tokens, score), (their_tokens, their_score) in zip(ours_, expected, strict=True):
            assert their_score is None or abs(score - their_score) < TIE, f"{name}, {decoding}"
            if tokens != their_tokens and their_score is not None:
                counts["ties"] += 1
            else:
                assert tokens == their_tokens, f"{name}, {decoding}"
        for hypothesis in result.hypotheses:
            length = len(hypothesis.tokens)
            ended = hypothesis.tokens[-1] in decoding.eos_token_ids and length < decoding.max_new_tokens
            assert (hypothesis.stopped is StopReason.END) >= ended
            assert (hypothesis.stopped is StopReason.LENGTH) <= (length == decoding.max_new_tokens)
        counts.update(texts=1, hypotheses=len(ours_))
    return counts


def record(counts, record_property):
    """Record the counts for the report at the end of the run."""
    for what in ("texts", "hypotheses", "ties"):
        record_property(f"generation: {what}", counts[what])


def compare_all(tested, cases, record_property):
    counts = sum((compare(tested, decoding) for decoding in cases), Counter())
    record(counts, record_property)
    assert counts["texts"] == 3 * len(cases) > 0
    assert counts["ties"] <= 0.01 * counts["hypotheses"]


def test_a_choice_of_decoding_cases(tested, record_property):
    compare_all(tested, chosen(tested[0]), record_property)


@pytest.mark.slow
def test_all_decoding_cases(tested, record_property):
    compare_all(tested, possible(tested[0]), record_property)


def test_the_choices_cover_every_value_in_several_classes():
    covered = Counter(
        value for name in GENERATIVE_CASES for value in set().union(*(each.values() for each in chosen(name)))
    )
    assert min(covered.values()) >= 2
    assert set(covered) == {value for decoding in DECODING_CASES for value in decoding.values()}


def test_no_generative_class_is_left_out():
    generative = {name for name, family in FAMILIES.items() if name != "transfo-xl" and _has_generative_class(family)}
    assert {case.family for case in GENERATIVE_CASES.values()} == generative


def _has_generative_class(family):
    kinds = (getattr(transformers, name, None) for name in family.architectures)
    return any(kind is not None and hasattr(kind, "can_generate") and kind.can_generate() for kind in kinds)


@pytest.mark.parametrize("beam", [1, 3], ids=["greedy", "beam"])
def test_a_forced_prefix(tmp_path, beam):
    """mBART's language code, forced after the decoder start token."""
    case = GENERATIVE_CASES["MBartForConditionalGeneration"]
    model, decoding = oracle(case), DecodingCase(beam=beam)
    network, _ = ours(case, model, tmp_path)
    options = replace(decoding.ours(), logits_processors=(ForcedPrefix([31]),))
    counts = compare(("mBART", case, model, network), decoding, options, forced_bos_token_id=31)
    assert (counts["texts"], counts["ties"]) == (3, 0)
    assert all(result.tokens[0] == 31 for result in generate(network, make_inputs(network), options))


STORIES = [
    DecodingCase(),
    DecodingCase(processor="no repeated trigram"),
    DecodingCase(processor="repetition penalty"),
    DecodingCase(beam=4),
    DecodingCase(beam=4, processor="no repeated bigram", early_stopping=EarlyStopping.WHEN_FULL),
    DecodingCase(beam=3, length_penalty=0.2, early_stopping=EarlyStopping.NEVER),
]
PROMPTS = [Inputs([1, 403, 407, 261, 378]), Inputs([1]), Inputs([1, 400, 300])]


@pytest.mark.parametrize(
    ("name", "max_new_tokens", "cases"),
    [
        ("stories260K", 40, STORIES[:5:2]),
        ("stories15M", 12, STORIES[:4:3]),
        pytest.param("stories260K", 250, STORIES, marks=pytest.mark.slow),
        pytest.param("stories15M", 100, STORIES, marks=pytest.mark.slow),
    ],
)
def test_trained_weights_generate_the_same_stories(name, max_new_tokens, cases, record_property):
    """Both models end a story with token 1, which is also BOS."""
    if "REGARD_DATA" not in os.environ:
        pytest.skip("REGARD_DATA is not set")
    path = Path(os.environ["REGARD_DATA"]) / "weights" / name
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    network = regard.load(path, precision="float64").network
    with in_double("llama"):
        model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float64)
    trained = name, Case("llama", "LlamaForCausalLM"), model, network
    cases = [replace(decoding, max_new_tokens=max_new_tokens, eos_token_ids=(1,)) for decoding in cases]
    counts = sum((compare(trained, decoding, inputs=PROMPTS) for decoding in cases), Counter())
    record(counts, record_property)
    assert counts["ties"] == 0
