import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.small_networks import chances, close, dropout_as_factor, few, gradients, many, numbers

from regard.transformer.attention_kernel import AttentionKernel, attention, attention_weights, fused_attention
from regard.transformer.mask import Triangle

ROWS, HEADS, QUERY, KEY, DIM, SCALE = 2, 4, 5, 7, 3, 0.43
BOTH = pytest.mark.parametrize("kernel", [attention, fused_attention])

MASKS = {
    "all": lambda seed: None,
    "triangle": lambda seed: Triangle(),
    "each row": lambda seed: chances(ROWS, 1, QUERY, KEY, seed=seed),
    "each head": lambda seed: chances(ROWS, HEADS, QUERY, KEY, seed=seed),
    "one for all": lambda seed: chances(1, 1, QUERY, KEY, seed=seed),
}
BIAS = {
    "none": lambda keys: None,
    "each row": lambda keys: numbers(ROWS, HEADS, QUERY, keys, seed=7),
    "one for all rows": lambda keys: numbers(1, HEADS, QUERY, keys, seed=7),
    "one for all heads": lambda keys: numbers(ROWS, 1, QUERY, keys, seed=7),
}


def make_inputs(visible, bias, key_heads, seed=0):
    """Query, key, value, mask and bias; with the triangle, there are as many keys as queries."""
    attention_mask = MASKS[visible](seed)
    keys = QUERY if isinstance(attention_mask, Triangle) else KEY
    query = numbers(ROWS, HEADS, QUERY, DIM, seed=seed).requires_grad_()
    key = numbers(ROWS, key_heads, keys, DIM, seed=seed + 1).requires_grad_()
    value = numbers(ROWS, key_heads, keys, DIM, seed=seed + 2).requires_grad_()
    added = BIAS[bias](keys)
    return query, key, value, attention_mask, None if added is None else added.requires_grad_()


def by_loop(query, key, value, visible, bias):
    """The equation, element by element."""
    keys, group = key.shape[2], HEADS // key.shape[1]
    output = torch.zeros(ROWS, HEADS, QUERY, DIM, dtype=torch.float64)
    shape = (ROWS, HEADS, QUERY, keys)
    if isinstance(visible, Triangle):
        visible = torch.tensor([[k <= q for k in range(keys)] for q in range(QUERY)])
    attention_mask = torch.ones(shape, dtype=torch.bool) if visible is None else visible.expand(shape)
    added = torch.zeros(shape) if bias is None else bias.expand(shape)
    for row, head, q in itertools.product(range(ROWS), range(HEADS), range(QUERY)):
        sizes = {}
        for k in range(keys):
            if attention_mask[row, head, q, k]:
                product = sum(float(query[row, head, q, d] * key[row, head // group, k, d]) for d in range(DIM))
                sizes[k] = math.exp(product * SCALE + float(added[row, head, q, k]))
        for k, size in sizes.items():
            output[row, head, q] += size / sum(sizes.values()) * value[row, head // group, k]
    return output


@pytest.mark.parametrize("bias", BIAS)
@pytest.mark.parametrize("visible", MASKS)
def test_the_definition_is_the_equation_number_by_number(visible, bias):
    query, key, value, attention_mask, added = make_inputs(visible, bias, key_heads=2)
    with torch.no_grad():
        close(
            attention(query, key, value, SCALE, attention_mask, added),
            by_loop(query, key, value, attention_mask, added),
            1e-12,
        )


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("bias", BIAS)
@pytest.mark.parametrize("visible", MASKS)
def test_fused_is_the_definition_with_its_gradients(visible, bias, key_heads):
    """Random masks: some queries may attend to no key."""
    query, key, value, attention_mask, added = make_inputs(visible, bias, key_heads, seed=3)
    inputs = [query, key, value] if added is None else [query, key, value, added]
    one, other = (kernel(query, key, value, SCALE, attention_mask, added) for kernel in (attention, fused_attention))
    close(one, other, 1e-12)
    for mine, theirs in zip(gradients(one, inputs), gradients(other, inputs), strict=True):
        assert mine.abs().max() > 0
        close(mine, theirs, 1e-11)


@given(seed=st.integers(0, 999), visible=st.sampled_from(sorted(MASKS)), bias=st.sampled_from(sorted(BIAS)))
@many
def test_weights_sum_to_one_where_something_is_seen_and_are_zero_where_not(seed, visible, bias):
    query, key, _, attention_mask, added = make_inputs(visible, bias, 2, seed)
    found = attention_weights(query, key, SCALE, attention_mask, added)
    allowed = torch.ones(found.shape[-2:], dtype=torch.bool)
    allowed = (
        allowed.tril()
        if isinstance(attention_mask, Triangle)
        else allowed
        if attention_mask is None
        else attention_mask
    ).expand(found.shape)
    close(found.sum(-1), allowed.any(-1).double(), 1e-12)
    assert bool((found[~allowed] == 0).all())
    assert bool((found[allowed] > 0).all())


@BOTH
@pytest.mark.parametrize("bias", BIAS)
def test_who_sees_nothing_gets_zeros_and_passes_no_gradient(kernel, bias):
    query, key, value, attention_mask, added = make_inputs("each row", bias, key_heads=2)
    attention_mask[0, 0, 2] = False
    inputs = [query, key, value] if added is None else [query, key, value, added]
    output = kernel(query, key, value, SCALE, attention_mask, added)
    found = gradients(output, inputs)
    assert bool((output[0, :, 2] == 0).all())
    assert bool((found[0][0, :, 2] == 0).all())
    for tensor in (output, *found):
        assert bool(tensor.isfinite().all())


@BOTH
def test_nobody_sees_anything(kernel):
    query, key, value, _, _ = make_inputs("each row", "none", key_heads=2)
    output = kernel(query, key, value, SCALE, torch.zeros(1, 1, QUERY, KEY, dtype=torch.bool))
    for tensor in (output, *gradients(output, [query, key, value])):
        assert bool((tensor == 0).all())


@BOTH
@given(seed=st.integers(0, 999), shift=st.floats(-50, 50))
@few
def test_adding_a_number_to_all_scores_of_a_query_changes_nothing(kernel, seed, shift):
    query, key, value, attention_mask, added = make_inputs("each row", "each row", 2, seed)
    close(
        kernel(query, key, value, SCALE, attention_mask, added + shift),
        kernel(query, key, value, SCALE, attention_mask, added),
    )


@BOTH
def test_large_scores_do_not_overflow(kernel):
    query, key, value, attention_mask, _ = make_inputs("each row", "none", 4)
    output = kernel(query * 1e4, key, value, SCALE, attention_mask)
    best = (query @ key.transpose(-2, -1)).masked_fill(~attention_mask, -math.inf).argmax(-1)
    expected = value.gather(2, best[..., None].expand_as(output)) * attention_mask.any(-1, keepdim=True)
    close(output, expected)


def test_dropout_falls_on_the_weights():
    query, key, value, attention_mask, added = make_inputs("each row", "each row", 2)
    with dropout_as_factor():
        dropped = attention(query, key, value, SCALE, attention_mask, added, dropout=0.3)
    close(dropped, 0.7 * attention(query, key, value, SCALE, attention_mask, added), 1e-12)
    torch.manual_seed(0)
    ones = torch.ones_like(value)
    output = attention(query, key, ones, SCALE, None, None, dropout=0.5)
    assert output.unique().numel() > 5, "each weight is dropped on its own: the sums of what is left differ"


@pytest.mark.parametrize(("rate", "training"), [(0.0, True), (0.3, True), (0.3, False)])
def test_the_kernel_of_a_network_drops_only_in_training(rate, training):
    query, key, value, attention_mask, added = make_inputs("each row", "each row", 2)
    kernel = AttentionKernel(SCALE, rate).train(training)
    with dropout_as_factor():
        output = kernel(query, key, value, attention_mask, added)
    factor = 1 - rate if training else 1
    close(output, factor * attention(query, key, value, SCALE, attention_mask, added), 1e-12)
