"""Each compiled function against its definition, for sizes that are no multiples of anything."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.checkpoint.quantized_tensor import rounded
from regard.engine.kv_cache import described
from regard.engine.linear import Affine, Precision
from regard.engine.modules_native import CompiledNorm, InPanels
from regard.native import ops
from regard.native.ctypes_structs import Lengths
from regard.native.library import available, library
from regard.transformer import config
from regard.transformer.attention_kernel import attention
from regard.transformer.cache import Moves
from regard.transformer.config import Activation
from regard.transformer.feedforward import ACTIVATIONS
from regard.transformer.normalization import LayerNorm, RMSNorm

pytestmark = pytest.mark.skipif(not available(), reason="this machine has no compiled parts")

SIZE = st.integers(1, 40)
SEED = st.integers(0, 10**6)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def affine(outputs, inputs, seed=0, bias=True):
    return Affine(numbers(outputs, inputs, seed=seed), numbers(outputs, seed=seed + 1) if bias else None)


@given(rows=SIZE, inputs=SIZE, outputs=SIZE, bias=st.booleans(), seed=SEED)
@example(rows=200, inputs=700, outputs=100, bias=True, seed=0)  # more than one chunk of rows, more than one of depth
@example(rows=6, inputs=1, outputs=1, bias=False, seed=0)
@settings(max_examples=60)
def test_a_product(rows, inputs, outputs, bias, seed):
    one, x = affine(outputs, inputs, seed, bias), numbers(rows, inputs, seed=seed + 2)
    expected = torch.nn.functional.linear(
        x.double(), one.weight.double(), None if one.bias is None else one.bias.double()
    )
    found = InPanels(one, Precision.FP32)(x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * math.sqrt(inputs))


def whole_numbers(x):
    """Each vector in levels, and what one is worth."""
    most = 127
    top = x.abs().amax(dim=1, keepdim=True)
    factor = torch.where(top > 0, torch.full_like(top, most) / top, 0)  # (most / top is not rounded as a division)
    levels = (x * factor).round().double()
    return levels, (top / most).double()


@given(rows=SIZE, inputs=SIZE, outputs=SIZE, bias=st.booleans(), seed=SEED)
@example(rows=200, inputs=701, outputs=100, bias=True, seed=0)
@example(rows=17, inputs=9001, outputs=20, bias=True, seed=0)  # more than one tile, and deep
@settings(max_examples=60)
def test_a_product_in_bytes(rows, inputs, outputs, bias, seed):
    """The definition: whole numbers times whole numbers, added up exactly."""
    one, x = affine(outputs, inputs, seed, bias), numbers(rows, inputs, seed=seed + 2)
    levels, scale = rounded(one.weight)
    whole, worth = whole_numbers(x)
    expected = whole @ levels.double().T * worth * scale.double() + (0 if one.bias is None else one.bias.double())
    found = InPanels(one, Precision.INT8)(x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * math.sqrt(inputs))


@pytest.mark.parametrize(("weight", "x"), [(1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)])
@pytest.mark.parametrize("inputs", [2, 4096, 65536])
def test_the_largest_sums_in_bytes_do_not_overflow(weight, x, inputs):
    found = InPanels(Affine(torch.full((17, inputs), weight), None), Precision.INT8)(torch.full((3, inputs), x))
    torch.testing.assert_close(found, torch.full((3, 17), inputs * weight * x), rtol=1e-5, atol=0)


@pytest.mark.parametrize("precision", list(Precision))
@given(rows=SIZE, seed=SEED, loud=st.floats(1e-6, 1e6))
@settings(max_examples=30)
def test_a_neighbour_changes_no_bit(precision, rows, seed, loud):
    matrix, x = InPanels(affine(48, 64), precision), numbers(rows, 64, seed=seed)
    beside = matrix(torch.cat([x, loud * numbers(1, 64, seed=seed + 1)]))
    assert torch.equal(matrix(x), beside[:-1])
    assert all(torch.equal(matrix(row[None])[0], found) for row, found in zip(x, beside, strict=False))


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("rows", "outputs"), [(77, 300), (5, 300), (5, 70_000), (1, 40)])
def test_threads_change_no_bit(precision, threads, rows, outputs):
    """Rows are shared out, or strips of columns: a few, as many as can be noted, or one."""
    matrix, x, before = InPanels(affine(outputs, 64), precision), numbers(rows, 64), torch.get_num_threads()
    expected = matrix(x)
    torch.set_num_threads(threads)
    try:
        assert torch.equal(matrix(x), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("strange", [math.nan, math.inf])
@pytest.mark.parametrize("precision", list(Precision))
def test_what_is_no_number_stays_none(precision, strange):
    x = numbers(4, 64)
    x[2, 13] = strange
    found = InPanels(affine(48, 64), precision)(x)
    assert not found[2].isfinite().any()
    assert found[[0, 1, 3]].isfinite().all()


def test_other_leading_dimensions_and_other_layouts():
    one, x = affine(19, 12), numbers(12, 5, 3).permute(1, 2, 0)
    expected = torch.nn.functional.linear(x, one.weight, one.bias)
    torch.testing.assert_close(InPanels(one, Precision.FP32)(x), expected)
    turned = Affine(one.weight.T.contiguous().T, one.bias)
    torch.testing.assert_close(InPanels(turned, Precision.FP32)(x), expected)


@pytest.mark.parametrize("precision", list(Precision))
def test_some_rows_of_a_matrix(precision):
    matrix, x, chosen = InPanels(affine(50, 13), precision), numbers(3, 13), torch.tensor([49, 0, 16, 17, 16])
    assert torch.equal(matrix.only(chosen)(x), matrix(x)[:, chosen])


@pytest.mark.parametrize("activation", list(Activation))
def test_activations(activation):
    """On the way out of a product, over all that can occur."""
    x = torch.cat(
        [torch.linspace(-100, 100, 4001), torch.linspace(-6, 6, 4001), torch.tensor([0.0, -0.0, 1e-30, 1e30])]
    )
    unit = Affine(torch.ones(1, 1), None)
    found = InPanels(unit, Precision.FP32, activation)(x[:, None])[:, 0]
    expected = ACTIVATIONS[activation](x.double())
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=1e-6)


@given(rows=SIZE, dim=SIZE, seed=SEED, said=st.booleans(), centred=st.booleans())
@settings(max_examples=60)
def test_norms(rows, dim, seed, said, centred):
    kind = (LayerNorm, config.LayerNorm) if centred else (RMSNorm, config.RMSNorm)
    norm = kind[0](kind[1](epsilon=1e-3), dim)
    for number, parameter in enumerate(norm.parameters()):
        parameter.data = numbers(dim, seed=seed + number)
    x, more = 3 * numbers(rows, dim, seed=seed + 2) + 5, numbers(rows, dim, seed=seed + 3) if said else None
    with torch.no_grad():
        expected = norm.double()(x.double() if more is None else x.double() + more.double())
        found = CompiledNorm(norm.float())(x, more)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@given(rows=SIZE, dim=SIZE, seed=SEED, activation=st.sampled_from(Activation))
@settings(max_examples=30)
def test_gates(rows, dim, seed, activation):
    x = numbers(rows, 2 * dim, seed=seed)
    expected = ACTIVATIONS[activation](x[:, :dim].double()) * x[:, dim:].double()
    found = ops.gate(x, ops.ACTIVATIONS[activation])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@st.composite
def asked(draw):
    """Rows of queries and keys; causal ones have at least as many keys as queries."""
    causal = draw(st.booleans())
    rows = draw(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=4))
    pairs = [(queries, queries + more if causal else max(1, more)) for queries, more in rows]
    key_heads = draw(st.integers(1, 3))
    heads = key_heads * draw(st.integers(1, 3))
    return causal, pairs, heads, key_heads, draw(st.integers(1, 35)), draw(st.booleans()), draw(SEED)


@given(asked(), st.sampled_from([None, "shared", "own", "turned"]), st.sampled_from([torch.float32, torch.bfloat16]))
@settings(max_examples=120)
def test_attention(case, biased, kind):
    """Row by row against the equation, side by side and in rectangles, of whole numbers and of half ones."""
    causal, pairs, heads, key_heads, dim, rectangle, seed = case
    queries, keys = zip(*pairs, strict=True)
    query = numbers(sum(queries), heads, dim, seed=seed)
    key, value = numbers(2, sum(keys), key_heads, dim, seed=seed + 1)
    bias = None
    if biased:
        bias = numbers(len(pairs) if biased == "own" else 1, heads, max(queries), max(keys) + 3, seed=seed + 2)
        if biased == "turned":  # as a table of buckets gives it
            bias = bias.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    scale, asking, answering = 0.37, Lengths(queries), Lengths(keys)
    key, value = key.to(kind), value.to(kind)
    given_key, given_value = key, value
    if rectangle:
        room = (len(pairs) + 1, key_heads, max(keys) + 2, dim)
        given_key, given_value = (torch.full(room, math.nan, dtype=kind) for _ in "kv")
        for kept, new in ((given_key, key), (given_value, value)):
            ops.keep(kept, new, answering, Lengths([0] * len(pairs)))
    found = ops.attend(query, given_key, given_value, asking, answering, scale, causal, bias)
    parts = zip(query.split(queries), key.split(keys), value.split(keys), found.split(queries), strict=True)
    for row, (q, k, v, answer) in enumerate(parts):
        visible = None
        if causal:
            visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))[None, None]
        added = None if bias is None else bias[[row if len(bias) > 1 else 0], :, : len(q), : len(k)].double()
        turned = (part.transpose(0, 1)[None].double() for part in (q, k, v))
        expected = attention(*turned, scale, visible, added)[0].transpose(0, 1).flatten(1)
        torch.testing.assert_close(answer.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_keys_are_put_behind_those_before(kind):
    kept = torch.zeros(3, 2, 6, 5, dtype=kind)
    new = numbers(6, 2, 5)
    ops.keep(kept, new, Lengths([1, 3, 2]), Lengths([4, 0, 2]))
    expected = torch.zeros(3, 2, 6, 5, dtype=kind)
    new = new.to(kind)
    expected[0, :, 4], expected[1, :, :3] = new[0], new[1:4].transpose(0, 1)
    expected[2, :, 2:4] = new[4:].transpose(0, 1)
    assert torch.equal(kept, expected)


@given(st.sets(st.integers(0, 9), min_size=1), st.sampled_from([torch.float32, torch.bfloat16]), SEED)
@settings(max_examples=40)
def test_rows_change_places(staying, kind, seed):
    """As `Kept` moves them: each as far as it is filled, and nothing else is touched. Some stay, the others become
    copies of those; where a row would be overwritten before it is copied, torch moves them."""
    rows = sorted(staying)
    order = [row if row in staying else rows[(seed + row) % len(rows)] for row in range(10)]
    moves = Moves(order, 10, torch.device("cpu"))
    assert moves.to is not None
    lengths = [1 + (seed + row) % 6 for row in range(10)]
    both = numbers(2, 11, 2, 7, 3, seed=seed).to(kind)[:, :, :, :6]
    expected = both.clone()
    for place, row in enumerate(order):
        expected[:, place, :, : lengths[row]] = both[:, row, :, : lengths[row]]
    here = described(*both)
    ops.move(1, here, here, moves.rows, moves.to, tuple(lengths[row] for row in order))
    assert torch.equal(both, expected)


@given(rows=st.integers(1, 4), count=st.integers(1, 40), seed=SEED)
@settings(max_examples=30)
def test_numbers_are_rounded_as_torch_rounds_them(rows, count, seed):
    x = torch.cat([numbers(rows, count, seed=seed), numbers(rows, 3, seed=seed + 1)], dim=1)
    x[0, 0] = [1 + 2.0**-8, 1 + 3 * 2.0**-8, math.inf, -math.inf, 1e-40, 3.4e38][seed % 6]
    expected = x.clone()
    expected[:, :count] = x[:, :count].bfloat16().float()
    library().round_to_half(rows, count, x.data_ptr(), count + 3)
    assert torch.equal(x, expected)
    x[0, 0] = math.nan
    library().round_to_half(rows, count, x.data_ptr(), count + 3)
    assert x[0, 0].isnan()


@given(rows=st.integers(1, 5), size=st.integers(1, 300), seed=SEED, count=st.integers(1, 12))
@settings(max_examples=60)
def test_sums_and_the_best(rows, size, seed, count):
    scores = 5 * numbers(rows, size, seed=seed)
    scores[0, seed % size] = -math.inf if size > 1 else 0
    torch.testing.assert_close(ops.log_sum(scores)[0], scores.double().logsumexp(1, keepdim=True).float())
    values, places = ops.best(scores, count)
    assert torch.equal(values, scores.topk(min(count, size)).values)
    assert torch.equal(values, scores.gather(1, places))


def test_of_equal_scores_the_earlier_comes_first():
    scores = torch.zeros(1, 100)
    scores[0, [60, 70]] = 1
    assert ops.best(scores, 4)[1].tolist() == [[60, 70, 0, 1]]


@given(size=st.integers(900, 9000), levels=st.integers(1, 400), forbidden=st.integers(0, 3), seed=SEED)
@settings(max_examples=60)
def test_peaks_find_the_same_as_looking_everywhere(size, levels, forbidden, seed):
    """Also where many are equal, where the largest was forbidden since, and where hardly any are possible."""
    scores = (levels * numbers(4, size, seed=seed)).round()
    scores[3, :-5] = -math.inf
    peaks = ops.no_peaks(*scores.shape)
    ops.log_sum(scores, peaks)
    for _ in range(forbidden):
        scores.scatter_(1, scores.argmax(dim=1, keepdim=True), -math.inf)
    for count in (1, 8, 12):
        for found, expected in zip(ops.best(scores, count, peaks), ops.best(scores, count), strict=True):
            assert torch.equal(found, expected)
        order = scores.sort(dim=1, descending=True, stable=True)
        assert torch.equal(ops.best(scores, count)[0], order.values[:, :count])
        assert torch.equal(ops.best(scores, count)[1], order.indices[:, :count])
    asked = scores, None, [0.0, -1.0, 2.0, 0.0], scores, torch.zeros(4, 1), 2, 8
    assert ops.continuations(*asked, peaks) == ops.continuations(*asked)


def test_of_equal_totals_the_likelier_token_comes_first():
    """Small differences are lost in a large total; they are not lost before."""
    scores = torch.full((1, 2000), -50.0)
    scores[0, [1500, 3, 1]] = torch.tensor([1.0, 0.75, 0.5])
    found = ops.continuations(scores, None, [-1e8], scores, torch.zeros(1, 1), 1, 3)
    assert list(found[2]) == [1500, 3, 1]


def test_the_best_of_what_is_no_number_have_places():
    scores = torch.full((2, 2000), math.nan)
    scores[1, 1500] = 1
    places = ops.best(scores, 3)[1]
    assert int(places.min()) >= 0
    assert int(places.max()) < 2000
    assert places[1, 0] == 1500


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_sum_with_what_is_no_number_is_none(strange):
    scores = numbers(2, 50)
    scores[1, 7] = strange
    found, good = ops.log_sum(scores)
    assert not good
    assert found[0].isfinite().all()
    assert not found[1].isfinite().any()


@pytest.mark.parametrize("place", [0, 4079, 4080, 4095, 4096, 5000, 8191, 8192])
def test_what_is_no_number_is_found_wherever_it_stands(place):
    """Sums are made stretch by stretch: of nothing possible in the first, of what is no number in any."""
    scores = numbers(3, 8193)
    scores[1:, :4096] = -math.inf
    scores[2:] = -math.inf
    found, good = ops.log_sum(scores)
    torch.testing.assert_close(found[:2], scores[:2].double().logsumexp(1, keepdim=True).float())
    assert found[2] == -math.inf
    assert not good
    assert ops.log_sum(scores[:2])[1]
    scores[:, place] = math.nan
    for strange in (scores, torch.full((1, 9000), math.nan)):
        found, good = ops.log_sum(strange)
        assert found.isnan().all()
        assert not good


def test_nothing_possible_adds_up_to_nothing():
    assert ops.log_sum(torch.full((1, 20), -math.inf))[0].tolist() == [[-math.inf]]


@given(texts=st.integers(1, 4), each=st.integers(1, 4), size=st.integers(1, 90), seed=SEED, count=st.integers(1, 12))
@settings(max_examples=60)
def test_continuations_are_the_best_of_all_rows_of_a_text(texts, each, size, seed, count):
    ruled, scores = numbers(2, texts * each, size, seed=seed)
    less, before, sums = numbers(3, texts * each, 1, seed=seed + 1)
    ruled[0, seed % size] = -math.inf
    less = (None, less, less.double(), less.expand(-1, 2)[:, :1])[seed % 4]
    found = ops.continuations(ruled, less, before[:, 0].tolist(), scores, sums, texts, count)
    totals, parents, tokens, said = (torch.tensor(list(part)).view(texts, -1) for part in found)
    every = ruled - (0 if less is None else less.float()) + before
    assert torch.equal(totals, every.view(texts, -1).topk(min(count, each * size)).values)
    rows = parents + each * torch.arange(texts)[:, None]
    assert torch.equal(totals, every[rows, tokens])
    assert torch.equal(said, (scores - sums)[rows, tokens])
    for text in (rows * size + tokens).tolist():
        assert len(set(text)) == len(text)
