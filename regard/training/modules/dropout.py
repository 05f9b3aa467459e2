"""Dropout with cheap random numbers.

On a CPU, torch draws a number of its Mersenne twister for every value, about 10 ns each: in a small network more than a
quarter of a training step. Sixteen bits decide as well whether a value is kept, and a fast generator gives four such
decisions a nanosecond; the compiled parts (`regard.native`) draw them where they are needed, and again on the way back,
without keeping any. Each call takes one seed from torch's own generator, so that `torch.manual_seed` still fixes
everything, and blocks that are computed twice (`Network.recompute`) are computed with the same zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.native.library import available
from regard.native.training_ops import chance, drop

LEVELS = 1 << 16


class Dropout(nn.Module):
    """Sets values to zero at random in training, and scales the others so that the expected sum stays the same."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropped = round(rate * LEVELS)
        self.scale = LEVELS / max(1, LEVELS - self.dropped)

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Some of the values."""
        if not self.training or self.dropped == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.dropped / LEVELS)
        if compiled(x):
            return drop(x, chance(self.dropped))
        return Scale.apply(x, kept(x.shape, self.dropped), self.scale)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        """Shown when the network is printed."""
        return f"rate={self.dropped / LEVELS:.4g}"


def compiled(*tensors: Tensor) -> bool:
    """Whether the compiled parts can do something with these."""
    return all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors) and available()


def kept(shape: torch.Size, dropped: int) -> Bool[Tensor, "*any"]:
    """Which values stay: each with the chance 1 - dropped/65536, whatever happens to the others."""
    seed = int(torch.randint(1 << 62, ()))
    count = shape.numel()
    drawn = np.random.SFC64(seed).random_raw((count + 3) // 4).view(np.uint16)[:count]
    return torch.from_numpy(drawn >= dropped).view(shape)


class Scale(torch.autograd.Function):
    """x · mask · scale. The mask is kept with one byte a value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        """Some of the values."""
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return scaled(x, mask, scale)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None, None]:
        """The same values of the gradient."""
        (mask,) = ctx.saved_tensors
        return scaled(gradient[0], mask, ctx.scale), None, None


def scaled(x: Float[Tensor, "*any"], mask: Bool[Tensor, "*any"], scale: float) -> Float[Tensor, "*any"]:
    """x · mask · scale. torch is ten times slower at multiplying numbers by a mask than numbers by numbers, so the mask
    is made numbers first, by numpy, which is quick at it.
    """
    kind = np.float64 if x.dtype == torch.float64 else np.float32
    factors = torch.from_numpy(np.multiply(mask.numpy(), kind(scale), dtype=kind))
    return torch.mul(x, factors).to(x.dtype)
