import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.reference_network import normalized
from unit.transformer.small_networks import LAYER_NORM, RMS_NORM, close, few, gradients, numbers, randomized

from regard.transformer import config, normalization

DIM = 7
KINDS = pytest.mark.parametrize("design", [LAYER_NORM, RMS_NORM], ids=["layer", "rms"])


@KINDS
@pytest.mark.parametrize("shape", [(5,), (3, 5), ()])
def test_each_norm_is_its_formula_with_gradients_for_any_leading_axes(design, shape):
    norm = randomized(normalization.build(design, DIM))
    x = numbers(*shape, DIM).requires_grad_()
    inputs = [x, *norm.parameters()]
    one, other = norm(x), normalized(design, norm, x)
    close(one, other, 1e-12)
    for mine, theirs in zip(gradients(one, inputs), gradients(other, inputs), strict=True):
        close(mine, theirs, 1e-11)


@given(seed=st.integers(0, 999), factor=st.floats(0.1, 100), shift=st.floats(-10, 10))
@few
def test_size_does_not_matter_and_to_layer_norm_neither_does_a_shift(seed, factor, shift):
    x = numbers(4, DIM, seed=seed)
    layer = randomized(normalization.build(config.LayerNorm(epsilon=0.0), DIM))
    rms = randomized(normalization.build(config.RMSNorm(epsilon=0.0), DIM))
    close(layer(x * factor + shift), layer(x), 1e-8)
    close(rms(x * factor), rms(x), 1e-10)


@KINDS
def test_the_epsilon_keeps_a_vector_of_zeros_finite(design):
    norm = randomized(normalization.build(design, DIM))
    x = torch.zeros(2, DIM, dtype=torch.float64, requires_grad=True)
    for tensor in (norm(x), *gradients(norm(x), [x, *norm.parameters()])):
        assert bool(tensor.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rms_norm_divides_in_float32_where_numbers_are_narrower(dtype):
    """The squares of 300 do not fit float16."""
    norm = randomized(normalization.build(RMS_NORM, DIM)).to(dtype)
    x = (300 * numbers(5, DIM)).to(dtype)
    wide = x.float() / (x.float().square().mean(-1, keepdim=True) + RMS_NORM.epsilon).sqrt()
    assert torch.equal(norm(x), wide.to(dtype) * norm.weight)
