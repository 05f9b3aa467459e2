"""Each native kernel against its definition, for sizes that are not multiples of anything."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.checkpoint.quantized_tensor import quantize
from regard.engine.kv_cache import cache_struct
from regard.engine.linear import LinearWeights, Precision
from regard.engine.modules_native import NativeNorm, PackedLinear
from regard.native import ops
from regard.native.ctypes_structs import RowLengths
from regard.native.library import available, library
from regard.transformer import config
from regard.transformer.attention_kernel import attention
from regard.transformer.cache import RowPermutation
from regard.transformer.config import Activation
from regard.transformer.feedforward import ACTIVATIONS
from regard.transformer.normalization import LayerNorm, RMSNorm

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not available")

SIZE = st.integers(1, 40)
SEED = st.integers(0, 10**6)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def affine(outputs, inputs, seed=0, bias=True):
    return LinearWeights(numbers(outputs, inputs, seed=seed), numbers(outputs, seed=seed + 1) if bias else None)


@given(rows=SIZE, inputs=SIZE, outputs=SIZE, bias=st.booleans(), seed=SEED)
@example(rows=200, inputs=700, outputs=100, bias=True, seed=0)  # more than one block of rows and of depth
@example(rows=6, inputs=1, outputs=1, bias=False, seed=0)
@settings(max_examples=60)
def test_a_product(rows, inputs, outputs, bias, seed):
    one, x = affine(outputs, inputs, seed, bias), numbers(rows, inputs, seed=seed + 2)
    expected = torch.nn.functional.linear(
        x.double(), one.weight.double(), None if one.bias is None else one.bias.double()
    )
    found = PackedLinear(one, Precision.FLOAT32)(x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * math.sqrt(inputs))


def quantize_rows(x):
    """Return the quantized rows and their scales."""
    qmax = 127
    absmax = x.abs().amax(dim=1, keepdim=True)
    # (qmax / absmax is not rounded as a division)
    factor = torch.where(absmax > 0, torch.full_like(absmax, qmax) / absmax, 0)
    quantized = (x * factor).round().double()
    return quantized, (absmax / qmax).double()


@given(rows=SIZE, inputs=SIZE, outputs=SIZE, bias=st.booleans(), seed=SEED)
@example(rows=200, inputs=701, outputs=100, bias=True, seed=0)
@example(rows=17, inputs=9001, outputs=20, bias=True, seed=0)  # more than one tile, and deep
@settings(max_examples=60)
def test_an_int8_product(rows, inputs, outputs, bias, seed):
    """The definition: integers times integers, exact sums."""
    one, x = affine(outputs, inputs, seed, bias), numbers(rows, inputs, seed=seed + 2)
    qweight, scale = quantize(one.weight)
    qx, x_scale = quantize_rows(x)
    expected = qx @ qweight.double().T * x_scale * scale.double() + (0 if one.bias is None else one.bias.double())
    found = PackedLinear(one, Precision.INT8)(x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * math.sqrt(inputs))


@pytest.mark.parametrize(("weight", "x"), [(1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)])
@pytest.mark.parametrize("inputs", [2, 4096, 65536])
def test_the_largest_int8_sums_do_not_overflow(weight, x, inputs):
    found = PackedLinear(LinearWeights(torch.full((17, inputs), weight), None), Precision.INT8)(
        torch.full((3, inputs), x)
    )
    torch.testing.assert_close(found, torch.full((3, 17), inputs * weight * x), rtol=1e-5, atol=0)


@pytest.mark.parametrize("precision", list(Precision))
@given(rows=SIZE, seed=SEED, loud=st.floats(1e-6, 1e6))
@settings(max_examples=30)
def test_a_neighbour_changes_no_bit(precision, rows, seed, loud):
    matrix, x = PackedLinear(affine(48, 64), precision), numbers(rows, 64, seed=seed)
    beside = matrix(torch.cat([x, loud * numbers(1, 64, seed=seed + 1)]))
    assert torch.equal(matrix(x), beside[:-1])
    assert all(torch.equal(matrix(row[None])[0], found) for row, found in zip(x, beside, strict=False))


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("rows", "outputs"), [(77, 300), (5, 300), (5, 70_000), (1, 40)])
def test_threads_change_no_bit(precision, threads, rows, outputs):
    """Threads share rows, or strips of columns: a few, the largest number, or one."""
    matrix, x, before = PackedLinear(affine(outputs, 64), precision), numbers(rows, 64), torch.get_num_threads()
    expected = matrix(x)
    torch.set_num_threads(threads)
    try:
        assert torch.equal(matrix(x), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("precision", list(Precision))
def test_non_finite_values_propagate(precision, value):
    x = numbers(4, 64)
    x[2, 13] = value
    found = PackedLinear(affine(48, 64), precision)(x)
    assert not found[2].isfinite().any()
    assert found[[0, 1, 3]].isfinite().all()


def test_other_leading_dimensions_and_other_layouts():
    one, x = affine(19, 12), numbers(12, 5, 3).permute(1, 2, 0)
    expected = torch.nn.functional.linear(x, one.weight, one.bias)
    torch.testing.assert_close(PackedLinear(one, Precision.FLOAT32)(x), expected)
    turned = LinearWeights(one.weight.T.contiguous().T, one.bias)
    torch.testing.assert_close(PackedLinear(turned, Precision.FLOAT32)(x), expected)


@pytest.mark.parametrize("activation", list(Activation))
def test_activations(activation):
    """Activations in the GEMM, over the whole range of values."""
    x = torch.cat(
        [torch.linspace(-100, 100, 4001), torch.linspace(-6, 6, 4001), torch.tensor([0.0, -0.0, 1e-30, 1e30])]
    )
    unit = LinearWeights(torch.ones(1, 1), None)
    found = PackedLinear(unit, Precision.FLOAT32, activation)(x[:, None])[:, 0]
    expected = ACTIVATIONS[activation](x.double())
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=1e-6)


@given(rows=SIZE, dim=SIZE, seed=SEED, has_sum=st.booleans(), is_layer_norm=st.booleans())
@settings(max_examples=60)
def test_norms(rows, dim, seed, has_sum, is_layer_norm):
    kind = (LayerNorm, config.LayerNorm) if is_layer_norm else (RMSNorm, config.RMSNorm)
    norm = kind[0](kind[1](epsilon=1e-3), dim)
    for number, parameter in enumerate(norm.parameters()):
        parameter.data = numbers(dim, seed=seed + number)
    x, more = 3 * numbers(rows, dim, seed=seed + 2) + 5, numbers(rows, dim, seed=seed + 3) if has_sum else None
    with torch.no_grad():
        expected = norm.double()(x.double() if more is None else x.double() + more.double())
        found = NativeNorm(norm.float())(x, more)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@given(rows=SIZE, dim=SIZE, seed=SEED, activation=st.sampled_from(Activation))
@settings(max_examples=30)
def test_gates(rows, dim, seed, activation):
    x = numbers(rows, 2 * dim, seed=seed)
    expected = ACTIVATIONS[activation](x[:, :dim].double()) * x[:, dim:].double()
    found = ops.gated_activation(x, ops.ACTIVATION_CODES[activation])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@st.composite
def attention_cases(draw):
    """Sequences of queries and keys; causal ones have at least as many keys as queries."""
    causal = draw(st.booleans())
    rows = draw(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=4))
    pairs = [(queries, queries + more if causal else max(1, more)) for queries, more in rows]
    key_heads = draw(st.integers(1, 3))
    heads = key_heads * draw(st.integers(1, 3))
    return causal, pairs, heads, key_heads, draw(st.integers(1, 35)), draw(st.booleans()), draw(SEED)


@given(
    attention_cases(),
    st.sampled_from([None, "shared", "own", "permuted"]),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
@settings(max_examples=120)
def test_attention(case, biased, kind):
    """Sequence by sequence against the equation, packed and in a KV cache, in float32 and in bf16."""
    causal, pairs, heads, key_heads, dim, cached, seed = case
    queries, keys = zip(*pairs, strict=True)
    query = numbers(sum(queries), heads, dim, seed=seed)
    key, value = numbers(2, sum(keys), key_heads, dim, seed=seed + 1)
    bias = None
    if biased:
        bias = numbers(len(pairs) if biased == "own" else 1, heads, max(queries), max(keys) + 3, seed=seed + 2)
        if biased == "permuted":  # as relative position buckets give it
            bias = bias.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    scale, query_lengths, key_lengths = 0.37, RowLengths(queries), RowLengths(keys)
    key, value = key.to(kind), value.to(kind)
    key_input, value_input = key, value
    if cached:
        shape = (len(pairs) + 1, key_heads, max(keys) + 2, dim)
        key_input, value_input = (torch.full(shape, math.nan, dtype=kind) for _ in "kv")
        for cache, new in ((key_input, key), (value_input, value)):
            ops.append_to_cache(cache, new, key_lengths, RowLengths([0] * len(pairs)))
    found = ops.attend(query, key_input, value_input, query_lengths, key_lengths, scale, causal, bias)
    parts = zip(query.split(queries), key.split(keys), value.split(keys), found.split(queries), strict=True)
    for row, (q, k, v, output) in enumerate(parts):
        visible = None
        if causal:
            visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))[None, None]
        added = None if bias is None else bias[[row if len(bias) > 1 else 0], :, : len(q), : len(k)].double()
        transposed = (part.transpose(0, 1)[None].double() for part in (q, k, v))
        expected = attention(*transposed, scale, visible, added)[0].transpose(0, 1).flatten(1)
        torch.testing.assert_close(output.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_keys_are_appended(kind):
    cache = torch.zeros(3, 2, 6, 5, dtype=kind)
    new = numbers(6, 2, 5)
    ops.append_to_cache(cache, new, RowLengths([1, 3, 2]), RowLengths([4, 0, 2]))
    expected = torch.zeros(3, 2, 6, 5, dtype=kind)
    new = new.to(kind)
    expected[0, :, 4], expected[1, :, :3] = new[0], new[1:4].transpose(0, 1)
    expected[2, :, 2:4] = new[4:].transpose(0, 1)
    assert torch.equal(cache, expected)


@given(st.sets(st.integers(0, 9), min_size=1), st.sampled_from([torch.float32, torch.bfloat16]), SEED)
@settings(max_examples=40)
def test_rows_are_copied(staying, kind, seed):
    """As `NativeLayerKVCache` copies them: each up to its length, and nothing else is written. Some stay, the others
    become copies of those."""
    rows = sorted(staying)
    order = [row if row in staying else rows[(seed + row) % len(rows)] for row in range(10)]
    moves = RowPermutation(order, 10, torch.device("cpu"))
    assert moves.copy_to is not None
    lengths = [1 + (seed + row) % 6 for row in range(10)]
    both = numbers(2, 11, 2, 7, 3, seed=seed).to(kind)[:, :, :, :6]
    expected = both.clone()
    for place, row in enumerate(order):
        expected[:, place, :, : lengths[row]] = both[:, row, :, : lengths[row]]
    here = cache_struct(*both)
    ops.copy_cache_rows(1, here, here, moves.copy_from, moves.copy_to, tuple(lengths[row] for row in order))
    assert torch.equal(both, expected)


@given(rows=st.integers(1, 4), count=st.integers(1, 40), seed=SEED)
@settings(max_examples=30)
def test_values_are_rounded_to_bf16_as_torch_rounds_them(rows, count, seed):
    x = torch.cat([numbers(rows, count, seed=seed), numbers(rows, 3, seed=seed + 1)], dim=1)
    x[0, 0] = [1 + 2.0**-8, 1 + 3 * 2.0**-8, math.inf, -math.inf, 1e-40, 3.4e38][seed % 6]
    expected = x.clone()
    expected[:, :count] = x[:, :count].bfloat16().float()
    library().round_to_bf16(rows, count, x.data_ptr(), count + 3)
    assert torch.equal(x, expected)
    x[0, 0] = math.nan
    library().round_to_bf16(rows, count, x.data_ptr(), count + 3)
    assert x[0, 0].isnan()


@given(rows=st.integers(1, 5), size=st.integers(1, 300), seed=SEED, count=st.integers(1, 12))
@settings(max_examples=60)
def test_logsumexp_and_topk(rows, size, seed, count):
    scores = 5 * numbers(rows, size, seed=seed)
    scores[0, seed % size] = -math.inf if size > 1 else 0
    torch.testing.assert_close(ops.logsumexp(scores)[0], scores.double().logsumexp(1, keepdim=True).float())
    values, places = ops.topk(scores, count)
    assert torch.equal(values, scores.topk(min(count, size)).values)
    assert torch.equal(values, scores.gather(1, places))


def test_of_equal_scores_the_earlier_comes_first():
    scores = torch.zeros(1, 100)
    scores[0, [60, 70]] = 1
    assert ops.topk(scores, 4)[1].tolist() == [[60, 70, 0, 1]]


@given(size=st.integers(900, 9000), levels=st.integers(1, 400), forbidden=st.integers(0, 3), seed=SEED)
@settings(max_examples=60)
def test_block_maxima_find_the_same_as_a_full_search(size, levels, forbidden, seed):
    """Also with many equal logits, after the largest was masked, and with hardly any finite ones."""
    scores = (levels * numbers(4, size, seed=seed)).round()
    scores[3, :-5] = -math.inf
    block_maxima = ops.empty_block_maxima(*scores.shape)
    ops.logsumexp(scores, block_maxima)
    for _ in range(forbidden):
        scores.scatter_(1, scores.argmax(dim=1, keepdim=True), -math.inf)
    for count in (1, 8, 12):
        for found, expected in zip(ops.topk(scores, count, block_maxima), ops.topk(scores, count), strict=True):
            assert torch.equal(found, expected)
        order = scores.sort(dim=1, descending=True, stable=True)
        assert torch.equal(ops.topk(scores, count)[0], order.values[:, :count])
        assert torch.equal(ops.topk(scores, count)[1], order.indices[:, :count])
    arguments = scores, None, [0.0, -1.0, 2.0, 0.0], scores, torch.zeros(4, 1), 2, 8
    assert ops.beam_topk(*arguments, block_maxima) == ops.beam_topk(*arguments)


def test_of_equal_totals_the_likelier_token_comes_first():
    """Small differences are rounded away in a large total, but candidates are sorted before the sum."""
    scores = torch.full((1, 2000), -50.0)
    scores[0, [1500, 3, 1]] = torch.tensor([1.0, 0.75, 0.5])
    found = ops.beam_topk(scores, None, [-1e8], scores, torch.zeros(1, 1), 1, 3)
    assert list(found[2]) == [1500, 3, 1]


def test_topk_of_nan_has_valid_indices():
    scores = torch.full((2, 2000), math.nan)
    scores[1, 1500] = 1
    places = ops.topk(scores, 3)[1]
    assert int(places.min()) >= 0
    assert int(places.max()) < 2000
    assert places[1, 0] == 1500


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logsumexp_of_non_finite_values_is_not_finite(value):
    scores = numbers(2, 50)
    scores[1, 7] = value
    found, good = ops.logsumexp(scores)
    assert not good
    assert found[0].isfinite().all()
    assert not found[1].isfinite().any()


@pytest.mark.parametrize("place", [0, 4079, 4080, 4095, 4096, 5000, 8191, 8192])
def test_nan_is_found_at_any_index(place):
    """logsumexp runs in chunks: one with only -inf at the beginning, NaN in any of them."""
    scores = numbers(3, 8193)
    scores[1:, :4096] = -math.inf
    scores[2:] = -math.inf
    found, good = ops.logsumexp(scores)
    torch.testing.assert_close(found[:2], scores[:2].double().logsumexp(1, keepdim=True).float())
    assert found[2] == -math.inf
    assert not good
    assert ops.logsumexp(scores[:2])[1]
    scores[:, place] = math.nan
    for value in (scores, torch.full((1, 9000), math.nan)):
        found, good = ops.logsumexp(value)
        assert found.isnan().all()
        assert not good


def test_logsumexp_of_minus_infinity_is_minus_infinity():
    assert ops.logsumexp(torch.full((1, 20), -math.inf))[0].tolist() == [[-math.inf]]


@given(texts=st.integers(1, 4), each=st.integers(1, 4), size=st.integers(1, 90), seed=SEED, count=st.integers(1, 12))
@settings(max_examples=60)
def test_beam_topk_is_the_top_k_of_all_beams_of_a_source(texts, each, size, seed, count):
    processed, scores = numbers(2, texts * each, size, seed=seed)
    normalizer, beam_scores, lse = numbers(3, texts * each, 1, seed=seed + 1)
    processed[0, seed % size] = -math.inf
    normalizer = (None, normalizer, normalizer.double(), normalizer.expand(-1, 2)[:, :1])[seed % 4]
    found = ops.beam_topk(processed, normalizer, beam_scores[:, 0].tolist(), scores, lse, texts, count)
    totals, parents, tokens, log_probs = (torch.tensor(list(part)).view(texts, -1) for part in found)
    every = processed - (0 if normalizer is None else normalizer.float()) + beam_scores
    assert torch.equal(totals, every.view(texts, -1).topk(min(count, each * size)).values)
    rows = parents + each * torch.arange(texts)[:, None]
    assert torch.equal(totals, every[rows, tokens])
    assert torch.equal(log_probs, (scores - lse)[rows, tokens])
    for text in (rows * size + tokens).tolist():
        assert len(set(text)) == len(text)
