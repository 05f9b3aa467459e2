"""Packed linear layers against the definition: x·weightᵀ + bias, and the same with explicit quantization."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.checkpoint.quantized_tensor import channel_scales, quantize
from regard.engine.linear import LinearWeights, OneDnnLinear, Precision, TorchLinear
from regard.engine.linear_int8 import FbgemmLinear, VnniLinear

HAS_FBGEMM = "fbgemm" in torch.backends.quantized.supported_engines


def random_normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def linear_weights(outputs=11, inputs=7, bias=True, seed=0):
    return LinearWeights(
        random_normal(outputs, inputs, seed=seed), random_normal(outputs, seed=seed + 1) if bias else None
    )


def expected_int8(weights, x, qmax):
    """Per-token absmax scales of the input, per-channel scales of the weight, exact sums."""
    scale = channel_scales(weights.weight, qmax).double()
    weight = (weights.weight.double() / scale[:, None]).round()
    absmax = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30)
    sums = (x / absmax * 127).round().double() @ weight.T
    return sums * (absmax.double() / 127) * scale + (0 if weights.bias is None else weights.bias.double())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [TorchLinear, OneDnnLinear])
@pytest.mark.parametrize("shape", [(1, 7), (5, 7), (2, 3, 7)])
def test_float32_is_the_same_product(kind, bias, shape):
    one, x = linear_weights(bias=bias), random_normal(*shape, seed=3)
    torch.testing.assert_close(kind(one)(x), nn.functional.linear(x, one.weight, one.bias))


@pytest.mark.parametrize(
    ("kind", "qmax"),
    [
        (VnniLinear, 127),
        pytest.param(FbgemmLinear, 63, marks=pytest.mark.skipif(not HAS_FBGEMM, reason="torch has no FBGEMM here")),
    ],
)
class TestInt8:
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("shape", [(1, 64), (5, 64), (2, 3, 64)])
    def test_it_is_the_definition(self, kind, qmax, bias, shape):
        one, x = linear_weights(48, 64, bias), random_normal(*shape, seed=3)
        torch.testing.assert_close(kind(one)(x).double(), expected_int8(one, x, qmax), rtol=1e-5, atol=1e-5)

    def test_the_largest_numbers_do_not_overflow(self, kind, qmax):
        """16 bits would not hold two products of 127 and 255: all at their largest, of either sign."""
        for sign, other in ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)):
            one, x = LinearWeights(torch.full((16, 256), sign), None), torch.full((3, 256), other)
            torch.testing.assert_close(kind(one)(x), torch.full((3, 16), 256 * sign * other), rtol=1e-5, atol=0)

    @given(st.integers(1, 40), st.integers(0, 1000), st.floats(1e-6, 1e6))
    @settings(max_examples=30)
    def test_a_loud_neighbour_changes_nothing(self, kind, qmax, rows, seed, loud):
        one, x = linear_weights(48, 64), random_normal(rows, 64, seed=seed)
        alone = kind(one)(x)
        beside = kind(one)(torch.cat([x, loud * random_normal(1, 64, seed=seed + 1)]))
        assert torch.equal(alone, beside[:-1])

    def test_zeros_stay_zeros(self, kind, qmax):
        one = linear_weights(48, 64)
        found = kind(one)(torch.zeros(2, 64))
        assert torch.equal(found, one.bias.expand(2, -1))


def test_quantizing_again_gives_the_same_values():
    weight = random_normal(50, 30) * torch.logspace(-6, 3, 50)[:, None]
    qweight, scale = quantize(weight)
    again, scale_again = quantize(qweight.float() * scale[:, None])
    assert torch.equal(qweight, again)
    torch.testing.assert_close(scale, scale_again)


def test_a_row_of_zeros_has_a_scale():
    assert bool((channel_scales(torch.zeros(3, 4)) > 0).all())
    assert torch.equal(quantize(torch.zeros(3, 4))[0], torch.zeros(3, 4, dtype=torch.int8))


def test_a_precision_by_its_name():
    assert Precision("int8") is Precision.INT8
    assert Precision("float32") is Precision("fp32") is Precision.FLOAT32  # "fp32" is its name in older versions
    with pytest.raises(ValueError, match="'int4' is not a valid Precision"):
        Precision("int4")
