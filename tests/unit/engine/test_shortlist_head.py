"""A network with shortlists against the network itself, whose logits outside the shortlists are masked."""

import random

import pytest
import torch
from unit.engine.test_shortlist import table
from unit.generation.networks import VOCABULARY, design
from unit.native.no_native import without_native_library
from unit.transformer.small_networks import made

from regard.checkpoint.quantized_tensor import QuantizedTensor, quantize
from regard.engine import Precision, compile, linear_int8
from regard.engine.linear import LinearWeights
from regard.engine.shortlist_head import BatchShortlists, Int8Linear, ShortlistEncoderDecoder
from regard.generation import BatchSize, BeamSearch, DecodingOptions, GreedySearch, Inputs, generate
from regard.generation.stopping_criteria import StopReason

HAS_FBGEMM = "fbgemm" in torch.backends.quantized.supported_engines
KINDS = ["plain", "float32", "int8", "float32 by torch", "VnniLinear"]
KINDS += [pytest.param("FbgemmLinear", marks=pytest.mark.skipif(not HAS_FBGEMM, reason="torch has no FBGEMM here"))]
ENDS = [2]


@pytest.fixture(params=KINDS)
def network(request, monkeypatch):
    original = made(design("translating by waves"), 0).float().eval()
    match request.param:
        case "plain":
            return original
        case "float32" | "int8" as precision:
            return compile(original, Precision(precision))
        case "float32 by torch":
            without_native_library(monkeypatch)
            return compile(original)
        case way:
            without_native_library(monkeypatch)
            monkeypatch.setattr(linear_int8, "make_int8_linear", getattr(linear_int8, way))
            return compile(original, Precision.INT8)


def lists(seed, most=7):
    draw = random.Random(seed)
    return [draw.sample(range(VOCABULARY), draw.randint(2, most)) for _ in range(VOCABULARY)]


def texts(seed, count=9):
    draw = random.Random(seed)
    return [
        Inputs([draw.randint(1, 8)], [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 5))])
        for _ in range(count)
    ]


def long_enough(row):
    """The first token is the length at which a sequence ends: sequences leave and enter the batch at all times."""
    return StopReason.TEXT if row.num_new_tokens >= row.tokens[0] else None


def generated(network, inputs, rows=16, beam=None):
    search = BeamSearch(beam=beam, n_best=2) if beam else GreedySearch()
    settings = DecodingOptions(search=search, eos_token_ids=ENDS, stopping_criteria=[long_enough], max_new_tokens=8)
    found = list(generate(network, inputs, settings, batch_size=BatchSize(sequences=rows)))
    return [[(one.tokens, one.token_scores) for one in result.hypotheses] for result in found]


def same(some, others):
    assert [[tokens for tokens, _ in one] for one in some] == [[tokens for tokens, _ in one] for one in others]
    flat = [[score for result in all_of for _, scores in result for score in scores] for all_of in (some, others)]
    assert flat[0] == pytest.approx(flat[1], abs=1e-5)


@pytest.mark.parametrize("beam", [None, 3])
def test_a_list_with_everything_is_no_list(network, beam):
    everything = table([list(range(VOCABULARY))] * VOCABULARY, vocabulary=VOCABULARY)
    same(
        generated(ShortlistEncoderDecoder(network, everything), texts(1), beam=beam),
        generated(network, texts(1), beam=beam),
    )


def test_the_scores_are_those_of_the_list_and_nothing_else(network):
    """In a padded batch, at every position: the network's logits, and -inf outside of each row's shortlist."""
    shortlist, always = table(lists(2), [5], VOCABULARY), ENDS
    listed = ShortlistEncoderDecoder(network, shortlist, always)
    source, target = torch.tensor([[4, 9, 6], [3, 8, 0]]), torch.tensor([[1, 7], [1, 0]])
    real, target_real = torch.tensor([[True] * 3, [True, True, False]]), torch.tensor([[True, True], [True, False]])
    with torch.inference_mode():
        found = listed(source, target, real, target_real).logits
        own = network(source, target, real, target_real).logits
    for row, (tokens, length) in enumerate([([4, 9, 6], 2), ([3, 8], 1)]):
        inside = torch.zeros(VOCABULARY, dtype=torch.bool)
        inside[shortlist.lookup(tokens, always)] = True
        assert {*ENDS, 5} <= set(inside.nonzero().flatten().tolist())
        for at in range(length):
            torch.testing.assert_close(found[row, at, inside], own[row, at, inside], rtol=1e-4, atol=1e-5)
            assert bool(found[row, at, ~inside].isneginf().all())


@pytest.mark.parametrize("beam", [None, 3])
def test_a_text_has_its_own_list_in_any_company(network, beam):
    listed = ShortlistEncoderDecoder(network, table(lists(3), [5], VOCABULARY), ENDS)
    inputs = texts(4, 12)
    alone = [result for one in inputs for result in generated(listed, [one], beam=beam)]
    assert len({len(result[0][0]) for result in alone}) > 3
    for rows in (3, 16):
        same(generated(listed, inputs, rows, beam), alone)
    same(generated(listed, inputs[::-1], 6, beam), alone[::-1])
    allowed = [set(listed.shortlist.lookup(one.source, ENDS).tolist()) for one in inputs]
    assert all(set(tokens) <= each for found, each in zip(alone, allowed, strict=True) for tokens, _ in found)


def test_rows_are_gathered_only_when_the_batch_changes(network, monkeypatch):
    listed = ShortlistEncoderDecoder(network, table(lists(3, 20), [5], VOCABULARY))
    calls = []
    kind = type(listed.head.output_embedding)
    rows = kind.select_rows
    monkeypatch.setattr(kind, "select_rows", lambda table, chosen: calls.append(len(chosen)) or rows(table, chosen))
    steps = []
    decoder = listed.decoder.forward
    monkeypatch.setattr(listed.decoder, "forward", lambda *args: steps.append(1) or decoder(*args))
    list(generate(listed, texts(5, 4), DecodingOptions(eos_token_ids=(), max_new_tokens=8)))
    assert len(steps) == 8
    assert len(calls) == 1


def test_sequences_that_leave_do_not_gather_rows_again():
    lists = BatchShortlists([torch.arange(9), torch.arange(3, 12), torch.arange(2, 10)])
    lists.linear = torch.nn.Identity()
    assert lists.reorder([2, 0]).linear is lists.linear


def test_an_outdated_union_is_replaced():
    many = table([[token, token + 1] for token in range(20)], vocabulary=30)
    lists = BatchShortlists([many.lookup([token]) for token in range(20)])
    assert len(lists.reorder(list(range(15))).union) == 21
    few = lists.reorder([3, 12])
    assert few.union.tolist() == [3, 4, 12, 13]
    assert few.excluded.tolist() == [[False, False, True, True], [True, True, False, False]]


@pytest.mark.skipif(not HAS_FBGEMM, reason="torch has no FBGEMM here")
def test_integers_are_multiplied_exactly():
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(33, 512, generator=generator), torch.randn(33, generator=generator)
    x = torch.randn(5, 512, generator=generator)
    qweight, scale = quantize(weight)
    packed = linear_int8.FbgemmLinear(LinearWeights(QuantizedTensor(qweight, scale), bias))
    unpacked = torch.ops.quantized.linear_unpack(packed.packed_qweight)[0]
    own = Int8Linear(LinearWeights(QuantizedTensor(unpacked.int_repr(), unpacked.q_per_channel_scales().float()), bias))
    torch.testing.assert_close(own(x), packed(x), rtol=1e-6, atol=1e-5)


def test_a_network_without_a_language_modelling_head_is_rejected():
    network = made(design("translating by waves"), 0).without_head()
    with pytest.raises(ValueError, match="needs a language-modelling head"):
        ShortlistEncoderDecoder(network, table([[1]]))
