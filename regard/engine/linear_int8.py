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

import threading
import warnings

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import LEVELS, TINY, Rounded, rounded, scales
from regard.engine.linear import Affine

FEWER_LEVELS = 63
"""2 · 63 · (127 + 128) fits into sixteen bits: an input is stored from 1 to 255, with its zero at 128."""
ONE_BY_ONE = threading.Lock()
"""Which warnings are shown is the same for all threads, so only one of them may change it."""
ROWS = 512
"""How many rows of a matrix are made numbers at a time: what fits into a CPU's cache is quick, and takes no memory."""


class ByInstruction(nn.Module):
    """Bytes multiplied and added in 32 bits, by an instruction that machines with VNNI have."""

    bias: Tensor | None

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        weight = affine.weight if isinstance(affine.weight, Rounded) else Rounded(*rounded(affine.weight))
        self.levels = nn.Buffer(weight.levels.contiguous(), persistent=False)
        self.scale = nn.Buffer(weight.scales() / LEVELS, persistent=False)
        self.register_buffer("bias", affine.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """x·weightᵀ + bias, in levels."""
        top = x.abs().amax(dim=-1, keepdim=True).clamp_min_(TINY)
        levels = (x * (LEVELS / top)).round_().to(torch.int8)
        found = torch._int_mm(levels.flatten(0, -2), self.levels.t()).view(*x.shape[:-1], -1) * self.scale
        return found.mul_(top) if self.bias is None else torch.addcmul(self.bias, found, top)


class BySixteenBits(nn.Module):
    """Bytes multiplied in pairs within sixteen bits, by instructions that every x86 of the last ten years has."""

    bias: Tensor | None

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        with ONE_BY_ONE, warnings.catch_warnings():  # torch will let go of this type; the kernels know no other
            warnings.simplefilter("ignore")
            levels = _in_fewer_levels(affine.weight)
        self.levels = torch.ops.quantized.linear_prepack(levels, None)
        self.register_buffer("bias", affine.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """x·weightᵀ + bias, in levels."""
        top = x.abs().amax(dim=-1, keepdim=True).clamp_min_(TINY)
        found = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
            x / top, 1 / LEVELS, LEVELS + 1, self.levels
        )
        return found.mul_(top) if self.bias is None else torch.addcmul(self.bias, found, top)


def _in_fewer_levels(weight: Tensor | Rounded) -> Tensor:
    """A matrix in 63 levels, of the type that the kernels know. What a file has in 127 becomes what the matrix itself
    would: no level is halfway between two others, 127 being a prime."""
    if not isinstance(weight, Rounded):
        scale = scales(weight, FEWER_LEVELS).double()
        zeros = torch.zeros(len(scale), dtype=torch.long)
        return torch.quantize_per_channel(weight, scale, zeros, 0, torch.qint8)
    levels = torch.empty_like(weight.levels, memory_format=torch.contiguous_format)
    for some, found in zip(torch.split(weight.levels, ROWS), torch.split(levels, ROWS), strict=True):
        found.copy_(some.float().mul_(FEWER_LEVELS / LEVELS).round_())
    scale = weight.scales(FEWER_LEVELS).double()
    return torch._make_per_channel_quantized_tensor(levels, scale, torch.zeros(len(scale), dtype=torch.long), 0)


def int8(affine: Affine) -> ByInstruction | BySixteenBits:
    """The quicker way on this machine."""
    sixteen_bits = "fbgemm" in torch.backends.quantized.supported_engines and not torch.cpu._is_vnni_supported()
    return BySixteenBits(affine) if sixteen_bits else ByInstruction(affine)
