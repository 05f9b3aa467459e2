"""Matrices in bytes.

Each output has a scale of its own, worked out once. Each input vector gets one when it comes, by its largest number, so
that what comes out for a text does not depend on the texts beside it:

    q = round(x / top(x) · levels)           y = (q · Q) · top(x) / levels · scale + bias

There are two ways to multiply bytes, and which is quicker depends on the machine. Where it has an instruction for it
(VNNI), `ByInstruction` uses all 127 levels. Elsewhere `BySixteenBits` is quicker by far: products of a byte and a byte
are added in pairs within sixteen bits, so one of the two must make do with 63 levels. It is the weight: the numbers of
a row of it are much alike, while an input has a few that stand out, and the rest need the levels.
"""

from __future__ import annotations

import warnings

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.checkpoint.rounding import LEVELS, TINY, rounded, scales
from regard.engine.matrix import Affine

FEWER_LEVELS = 63
"""2 · 63 · (127 + 128) fits into sixteen bits: an input is stored from 1 to 255, with its zero at 128."""


class ByInstruction(nn.Module):
    """Bytes multiplied and added in 32 bits, by an instruction that machines with VNNI have."""

    bias: Tensor | None

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        levels, scale = rounded(affine.weight)
        self.levels = nn.Buffer(levels, persistent=False)
        self.scale = nn.Buffer(scale / LEVELS, persistent=False)
        self.register_buffer("bias", affine.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """x·weightᵀ + bias, in levels."""
        top = torch.linalg.vector_norm(x, torch.inf, dim=-1, keepdim=True).clamp_min_(TINY)
        levels = (x * (LEVELS / top)).round_().to(torch.int8)
        found = torch._int_mm(levels.flatten(0, -2), self.levels.t()).view(*x.shape[:-1], -1) * self.scale
        return found.mul_(top) if self.bias is None else torch.addcmul(self.bias, found, top)


class BySixteenBits(nn.Module):
    """Bytes multiplied in pairs within sixteen bits, by instructions that every x86 of the last ten years has."""

    bias: Tensor | None

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        zeros = torch.zeros(len(affine.weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch will let go of this type one day; the kernels know no other
            warnings.simplefilter("ignore")
            scale = scales(affine.weight, FEWER_LEVELS).double()
            levels = torch.quantize_per_channel(affine.weight, scale, zeros, 0, torch.qint8)
        self.levels = torch.ops.quantized.linear_prepack(levels, None)
        self.register_buffer("bias", affine.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """x·weightᵀ + bias, in levels."""
        top = torch.linalg.vector_norm(x, torch.inf, dim=-1, keepdim=True).clamp_min_(TINY)
        found = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
            x / top, 1 / LEVELS, LEVELS + 1, self.levels
        )
        return found.mul_(top) if self.bias is None else torch.addcmul(self.bias, found, top)


def int8(affine: Affine) -> ByInstruction | BySixteenBits:
    """The quicker way on this machine."""
    sixteen_bits = "fbgemm" in torch.backends.quantized.supported_engines and not torch.cpu._is_vnni_supported()
    return BySixteenBits(affine) if sixteen_bits else ByInstruction(affine)
