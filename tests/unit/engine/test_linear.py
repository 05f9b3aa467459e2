"""Prepared matrices against the definition: x·weightᵀ + bias, and its rounded form written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.checkpoint.quantized_tensor import rounded, scales
from regard.engine.linear import Affine, Packed, Plain, Precision, named
from regard.engine.linear_int8 import ByInstruction, BySixteenBits

HAS_FBGEMM = "fbgemm" in torch.backends.quantized.supported_engines


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def affine(outputs=11, inputs=7, bias=True, seed=0):
    return Affine(numbers(outputs, inputs, seed=seed), numbers(outputs, seed=seed + 1) if bias else None)


def defined(one, x, levels):
    """Each vector in 127 levels of its own largest number, each output in levels of its own, added up exactly."""
    scale = scales(one.weight, levels).double()
    weight = (one.weight.double() / scale[:, None]).round()
    top = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30)
    whole = (x / top * 127).round().double() @ weight.T
    return whole * (top.double() / 127) * scale + (0 if one.bias is None else one.bias.double())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [Plain, Packed])
@pytest.mark.parametrize("shape", [(1, 7), (5, 7), (2, 3, 7)])
def test_float32_is_the_same_product(kind, bias, shape):
    one, x = affine(bias=bias), numbers(*shape, seed=3)
    torch.testing.assert_close(kind(one)(x), nn.functional.linear(x, one.weight, one.bias))


@pytest.mark.parametrize(
    ("kind", "levels"),
    [
        (ByInstruction, 127),
        pytest.param(BySixteenBits, 63, marks=pytest.mark.skipif(not HAS_FBGEMM, reason="torch has no FBGEMM here")),
    ],
)
class TestBytes:
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("shape", [(1, 64), (5, 64), (2, 3, 64)])
    def test_it_is_the_definition(self, kind, levels, bias, shape):
        one, x = affine(48, 64, bias), numbers(*shape, seed=3)
        torch.testing.assert_close(kind(one)(x).double(), defined(one, x, levels), rtol=1e-5, atol=1e-5)

    def test_the_largest_numbers_do_not_overflow(self, kind, levels):
        """Sixteen bits would not hold two products of 127 and 255: all at their largest, of either sign."""
        for sign, other in ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)):
            one, x = Affine(torch.full((16, 256), sign), None), torch.full((3, 256), other)
            torch.testing.assert_close(kind(one)(x), torch.full((3, 16), 256 * sign * other), rtol=1e-5, atol=0)

    @given(st.integers(1, 40), st.integers(0, 1000), st.floats(1e-6, 1e6))
    @settings(max_examples=30)
    def test_a_loud_neighbour_changes_nothing(self, kind, levels, rows, seed, loud):
        one, x = affine(48, 64), numbers(rows, 64, seed=seed)
        alone = kind(one)(x)
        beside = kind(one)(torch.cat([x, loud * numbers(1, 64, seed=seed + 1)]))
        assert torch.equal(alone, beside[:-1])

    def test_zeros_stay_zeros(self, kind, levels):
        one = affine(48, 64)
        found = kind(one)(torch.zeros(2, 64))
        assert torch.equal(found, one.bias.expand(2, -1))


def test_rounding_again_gives_the_same_levels():
    weight = numbers(50, 30) * torch.logspace(-6, 3, 50)[:, None]
    levels, scale = rounded(weight)
    again, scale_again = rounded(levels.float() * scale[:, None])
    assert torch.equal(levels, again)
    torch.testing.assert_close(scale, scale_again)


def test_a_row_of_zeros_has_a_scale():
    assert bool((scales(torch.zeros(3, 4)) > 0).all())
    assert torch.equal(rounded(torch.zeros(3, 4))[0], torch.zeros(3, 4, dtype=torch.int8))


def test_a_precision_by_its_name():
    assert named("int8") is Precision.INT8
    assert named(Precision.FP32) is Precision.FP32
    with pytest.raises(ValueError, match="'int4': choose one of fp32, int8"):
        named("int4")
