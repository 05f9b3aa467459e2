"""A network that scores only shortlists, against the network that scores everything and what is left out of that."""

import random

import pytest
import torch
from unit.engine.test_shortlist import table
from unit.generation.networks import VOCABULARY, design
from unit.native.no_native import without_compiled_parts
from unit.transformer.small_networks import made

from regard.checkpoint.quantized_tensor import Rounded, rounded
from regard.engine import Precision, linear_int8, prepare
from regard.engine.linear import Affine
from regard.engine.shortlist_head import Listed, Lists, WholeNumbers
from regard.generation import AtOnce, Beam, Given, Greedy, Settings, generate
from regard.generation.stopping_criteria import Stopped

HAS_FBGEMM = "fbgemm" in torch.backends.quantized.supported_engines
KINDS = ["plain", "fp32", "int8", "fp32 by torch", "ByInstruction"]
KINDS += [pytest.param("BySixteenBits", marks=pytest.mark.skipif(not HAS_FBGEMM, reason="torch has no FBGEMM here"))]
ENDS = [2]


@pytest.fixture(params=KINDS)
def network(request, monkeypatch):
    plain = made(design("translating by waves"), 0).float().eval()
    match request.param:
        case "plain":
            return plain
        case "fp32" | "int8" as precision:
            return prepare(plain, Precision(precision))
        case "fp32 by torch":
            without_compiled_parts(monkeypatch)
            return prepare(plain)
        case way:
            without_compiled_parts(monkeypatch)
            monkeypatch.setattr(linear_int8, "int8", getattr(linear_int8, way))
            return prepare(plain, Precision.INT8)


def lists(seed, most=7):
    draw = random.Random(seed)
    return [draw.sample(range(VOCABULARY), draw.randint(2, most)) for _ in range(VOCABULARY)]


def texts(seed, count=9):
    draw = random.Random(seed)
    return [
        Given([draw.randint(1, 8)], [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 5))])
        for _ in range(count)
    ]


def long_enough(row):
    """A text becomes as long as its first token says: texts leave and enter a batch at all times."""
    return Stopped.TEXT if row.length >= row.tokens[0] else None


def written(network, given, rows=16, beam=None):
    search = Beam(size=beam, best=2) if beam else Greedy()
    settings = Settings(search=search, end=ENDS, stop=[long_enough], limit=8)
    found = list(generate(network, given, settings, at_once=AtOnce(rows=rows)))
    return [[(one.tokens, one.token_scores) for one in result.hypotheses] for result in found]


def same(some, others):
    assert [[tokens for tokens, _ in one] for one in some] == [[tokens for tokens, _ in one] for one in others]
    flat = [[score for result in all_of for _, scores in result for score in scores] for all_of in (some, others)]
    assert flat[0] == pytest.approx(flat[1], abs=1e-5)


@pytest.mark.parametrize("beam", [None, 3])
def test_a_list_with_everything_is_no_list(network, beam):
    everything = table([list(range(VOCABULARY))] * VOCABULARY, vocabulary=VOCABULARY)
    same(written(Listed(network, everything), texts(1), beam=beam), written(network, texts(1), beam=beam))


def test_the_scores_are_those_of_the_list_and_nothing_else(network):
    """Beside each other and padded, at every position: the network's own, and -inf outside of each row's list."""
    shortlist, always = table(lists(2), [5], VOCABULARY), ENDS
    listed = Listed(network, shortlist, always)
    source, target = torch.tensor([[4, 9, 6], [3, 8, 0]]), torch.tensor([[1, 7], [1, 0]])
    real, target_real = torch.tensor([[True] * 3, [True, True, False]]), torch.tensor([[True, True], [True, False]])
    with torch.inference_mode():
        found = listed(source, target, real, target_real).logits
        own = network(source, target, real, target_real).logits
    for row, (tokens, length) in enumerate([([4, 9, 6], 2), ([3, 8], 1)]):
        inside = torch.zeros(VOCABULARY, dtype=torch.bool)
        inside[shortlist.of(tokens, always)] = True
        assert {*ENDS, 5} <= set(inside.nonzero().flatten().tolist())
        for at in range(length):
            torch.testing.assert_close(found[row, at, inside], own[row, at, inside], rtol=1e-4, atol=1e-5)
            assert bool(found[row, at, ~inside].isneginf().all())


@pytest.mark.parametrize("beam", [None, 3])
def test_a_text_has_its_own_list_in_any_company(network, beam):
    listed = Listed(network, table(lists(3), [5], VOCABULARY), ENDS)
    given = texts(4, 12)
    alone = [result for one in given for result in written(listed, [one], beam=beam)]
    assert len({len(result[0][0]) for result in alone}) > 3
    for rows in (3, 16):
        same(written(listed, given, rows, beam), alone)
    same(written(listed, given[::-1], 6, beam), alone[::-1])
    allowed = [set(listed.shortlist.of(one.source, ENDS).tolist()) for one in given]
    assert all(set(tokens) <= each for found, each in zip(alone, allowed, strict=True) for tokens, _ in found)


def test_rows_are_put_together_only_when_the_batch_changes(network, monkeypatch):
    listed = Listed(network, table(lists(3, 20), [5], VOCABULARY))
    calls = []
    kind = type(listed.head.table)
    rows = kind.rows
    monkeypatch.setattr(kind, "rows", lambda table, chosen: calls.append(len(chosen)) or rows(table, chosen))
    steps = []
    decoder = listed.decoder.forward
    monkeypatch.setattr(listed.decoder, "forward", lambda *given: steps.append(1) or decoder(*given))
    list(generate(listed, texts(5, 4), Settings(end=(), limit=8)))
    assert len(steps) == 8
    assert len(calls) == 1


def test_texts_that_leave_do_not_have_rows_put_together_again():
    lists = Lists([torch.arange(9), torch.arange(3, 12), torch.arange(2, 10)])
    lists.matrix = torch.nn.Identity()
    assert lists.keep([2, 0]).matrix is lists.matrix


def test_what_has_become_useless_is_let_go():
    many = table([[token, token + 1] for token in range(20)], vocabulary=30)
    lists = Lists([many.of([token]) for token in range(20)])
    assert len(lists.keep(list(range(15))).union) == 21
    few = lists.keep([3, 12])
    assert few.union.tolist() == [3, 4, 12, 13]
    assert few.outside.tolist() == [[False, False, True, True], [True, True, False, False]]


@pytest.mark.skipif(not HAS_FBGEMM, reason="torch has no FBGEMM here")
def test_whole_numbers_are_multiplied_exactly():
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(33, 512, generator=generator), torch.randn(33, generator=generator)
    x = torch.randn(5, 512, generator=generator)
    levels, scale = rounded(weight)
    packed = linear_int8.BySixteenBits(Affine(Rounded(levels, scale), bias))
    unpacked = torch.ops.quantized.linear_unpack(packed.levels)[0]
    own = WholeNumbers(Affine(Rounded(unpacked.int_repr(), unpacked.q_per_channel_scales().float()), bias))
    torch.testing.assert_close(own(x), packed(x), rtol=1e-6, atol=1e-5)


def test_a_network_that_does_not_write_is_refused():
    network = made(design("translating by waves"), 0).headless()
    with pytest.raises(ValueError, match="does not score words"):
        Listed(network, table([[1]]))
