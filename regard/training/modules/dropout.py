"""Dropout with cheap random numbers.

On a CPU, torch draws a number of its Mersenne Twister for every value, about 10 ns each: in a small network more than a
quarter of a training step. Sixteen bits are enough to decide whether a value is dropped, and a fast generator makes
four such decisions per nanosecond. The native kernels (`regard.native`) generate the mask where it is needed, and again
in the backward pass, without storing it. Each call takes one seed from torch's generator, so `torch.manual_seed` still
determines everything, and gradient checkpointing recomputes a block with the same mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.native.library import available
from regard.native.training_ops import dropout, make_dropout_rng

DROPOUT_RANGE = 1 << 16
"""Number of 16-bit values: the dropout probability is a multiple of 1/65536."""


class Dropout(nn.Module):
    """Dropout: zeroes values at random in training, and scales the others so that the expected value is unchanged."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.drop_threshold = round(p * DROPOUT_RANGE)
        self.scale = DROPOUT_RANGE / max(1, DROPOUT_RANGE - self.drop_threshold)

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Apply dropout in training mode."""
        if not self.training or self.drop_threshold == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.drop_threshold / DROPOUT_RANGE)
        if has_native_kernels(x):
            return dropout(x, make_dropout_rng(self.drop_threshold))
        return MaskedScale.apply(x, keep_mask(x.shape, self.drop_threshold), self.scale)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        """Show the probability when the network is printed."""
        return f"p={self.drop_threshold / DROPOUT_RANGE:.4g}"


def has_native_kernels(*tensors: Tensor) -> bool:
    """Whether the native kernels support these tensors: float32 on the CPU."""
    return all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors) and available()


def keep_mask(shape: torch.Size, drop_threshold: int) -> Bool[Tensor, "*any"]:
    """Draw a mask that is True with probability 1 - drop_threshold/65536, independently for each value."""
    seed = int(torch.randint(1 << 62, ()))
    count = shape.numel()
    random = np.random.SFC64(seed).random_raw((count + 3) // 4).view(np.uint16)[:count]
    return torch.from_numpy(random >= drop_threshold).view(shape)


class MaskedScale(torch.autograd.Function):
    """x · mask · scale. The mask is saved with one byte per value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        """Multiply by the mask and the scale."""
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return masked_scale(x, mask, scale)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None, None]:
        """Multiply the gradient by the mask and the scale."""
        (mask,) = ctx.saved_tensors
        return masked_scale(gradient[0], mask, ctx.scale), None, None


def masked_scale(x: Float[Tensor, "*any"], mask: Bool[Tensor, "*any"], scale: float) -> Float[Tensor, "*any"]:
    """Return x · mask · scale.

    torch multiplies floats by a bool mask ten times slower than by floats, so numpy converts the mask first.
    """
    dtype = np.float64 if x.dtype == torch.float64 else np.float32
    factors = torch.from_numpy(np.multiply(mask.numpy(), dtype(scale), dtype=dtype))
    return torch.mul(x, factors).to(x.dtype)
