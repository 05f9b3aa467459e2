"""Dropout with cheap random numbers.

On a CPU, torch draws a number of its Mersenne Twister for every value, about 10 ns each: in a small network more than a
quarter of a training step. Sixteen bits are enough to decide whether a value is dropped, and a fast generator makes
four such decisions per nanosecond. The native kernels (`regard.native`) generate the mask where it is needed, and again
in the backward pass, without storing it.

The mask of a token depends on the token's key (`draw_scope.py`) and on the address of the module: it is the same in any
batch. Without keys, each call takes one seed from torch's generator, so `torch.manual_seed` determines everything; runs
of earlier versions go on that way. Either way, gradient checkpointing recomputes a block with the same mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.random_keys import site
from regard.native.ctypes_structs import DropoutRng
from regard.native.library import available
from regard.native.training_ops import dropout, dropout_attention, make_dropout_rng
from regard.training.modules.draw_scope import MaskPer, RowKeys, current_scope, unkeyed_seed

DROPOUT_RANGE = 1 << 16
"""Number of 16-bit values: the dropout probability is a multiple of 1/65536."""
GROUP = 16
"""Number of values whose mask comes from one counter group (`dropout_rng.h`)."""
GROUPS_PER_HEAD = 1 << 16
"""The groups of attention weights of head h begin at h times this number (`training_attention.c`)."""


class Dropout(nn.Module):
    """Dropout: zeroes values at random in training, and scales the others so that the expected value is unchanged."""

    one_per = MaskPer.TOKEN

    def __init__(self, p: float) -> None:
        super().__init__()
        self.drop_threshold = round(p * DROPOUT_RANGE)
        self.scale = DROPOUT_RANGE / max(1, DROPOUT_RANGE - self.drop_threshold)
        self.site = 0

    def set_address(self, address: str, one_per: MaskPer = MaskPer.TOKEN) -> None:
        """Set the place in the network, which the masks depend on, and what the rows of the input are."""
        self.site, self.one_per = site(address), one_per

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Apply dropout in training mode."""
        if not self.training or self.drop_threshold == 0:
            return x
        keys = self._keys(x)
        if x.device.type != "cpu" and keys is None:
            return nn.functional.dropout(x, self.drop_threshold / DROPOUT_RANGE)
        if has_native_kernels(x):
            return dropout(x, self._rng(keys))
        mask = self._seeded_mask(x.shape) if keys is None else keyed_mask(keys, x[0].numel(), self.drop_threshold)
        return MaskedScale.apply(x, mask.view(x.shape), self.scale)  # type: ignore[no-untyped-call]

    def make_rng(self, x: Float[Tensor, "rows dim"]) -> DropoutRng:
        """Return the random state for a native kernel that applies this dropout to the rows of `x`."""
        if not self.training or self.drop_threshold == 0:
            return make_dropout_rng(0)
        return self._rng(self._keys(x))

    def attention_rng(self) -> DropoutRng:
        """Return the random state for the native attention kernel, whose rows are the queries of the whole batch."""
        if not self.training or self.drop_threshold == 0:
            return make_dropout_rng(0)
        scope = current_scope()
        return self._rng(scope.keys_of_queries(1, len(scope.token_keys), self.site) if scope else None)

    def drop_attention(self, weights: Float[Tensor, "rows heads query key"]) -> Float[Tensor, "rows heads query key"]:
        """Apply dropout to attention weights: the masks of the native attention kernel, whatever the batch."""
        scope = current_scope()
        if not self.training or self.drop_threshold == 0 or scope is None:
            return self(weights)
        rows, heads, length, num_keys = weights.shape
        keys = scope.keys_of_queries(rows, length, self.site)
        if has_native_kernels(weights):
            return dropout_attention(weights, self._rng(keys))
        mask = keyed_mask(keys, num_keys, self.drop_threshold, heads=heads)
        mask = mask.view(rows, length, heads, num_keys).transpose(1, 2)
        return MaskedScale.apply(weights, mask, self.scale)  # type: ignore[no-untyped-call]

    def _keys(self, x: Tensor) -> RowKeys | None:
        scope = current_scope()
        return scope.keys_of_rows(len(x), self.site, self.one_per) if scope else None

    def _rng(self, keys: RowKeys | None) -> DropoutRng:
        if keys is None:
            return make_dropout_rng(self.drop_threshold, seed=unkeyed_seed(self.one_per))
        return make_dropout_rng(self.drop_threshold, *keys)

    def _seeded_mask(self, shape: torch.Size) -> Bool[Tensor, "*any"]:
        """Draw a mask that is True with probability 1 - drop_threshold/65536, independently for each value."""
        count = shape.numel()
        generator = np.random.SFC64(unkeyed_seed(self.one_per))
        random = generator.random_raw((count + 3) // 4).view(np.uint16)[:count]
        return torch.from_numpy(random >= self.drop_threshold)

    def extra_repr(self) -> str:
        """Show the probability when the network is printed."""
        return f"p={self.drop_threshold / DROPOUT_RANGE:.4g}"


def has_native_kernels(*tensors: Tensor) -> bool:
    """Whether the native kernels support these tensors: float32 on the CPU."""
    return all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors) and available()


def keyed_mask(keys: RowKeys, size: int, drop_threshold: int, heads: int = 1) -> Bool[Tensor, "rows values"]:
    """Return the mask of rows of `heads` × `size` values: the definition of what `dropout_rng.h` computes.

    torch has no unsigned numbers to calculate with: signed ones have the same bits after additions and products, and
    shifts need a mask.
    """
    row_keys, site_seed = keys
    seeds = _mix64(row_keys ^ _signed(site_seed, 64))
    low, high = (half.to(torch.int32)[:, None, None] for half in (seeds & 0xFFFFFFFF, seeds >> 32))
    groups = torch.arange(-(-size // GROUP), device=row_keys.device) * (GROUP // 2)
    counters = groups[:, None] + torch.arange(GROUP // 2, device=row_keys.device)
    first = torch.arange(heads, device=row_keys.device)[:, None] * (GROUPS_PER_HEAD * GROUP // 2)
    counter = (first + counters.flatten()).to(torch.int32)
    random = _fmix32(_fmix32(counter ^ low) + high)
    halves = torch.stack([random & 0xFFFF, _shift_right(random, 16, 32)], dim=-1).flatten(-2)
    return (halves[..., :size] >= drop_threshold).flatten(1)


def _fmix32(x: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    x = (x ^ _shift_right(x, 16, 32)) * _signed(0x85EBCA6B, 32)
    x = (x ^ _shift_right(x, 13, 32)) * _signed(0xC2B2AE35, 32)
    return x ^ _shift_right(x, 16, 32)


def _mix64(x: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    x = (x ^ _shift_right(x, 30, 64)) * _signed(0xBF58476D1CE4E5B9, 64)
    x = (x ^ _shift_right(x, 27, 64)) * _signed(0x94D049BB133111EB, 64)
    return x ^ _shift_right(x, 31, 64)


def _shift_right(x: Int[Tensor, "*any"], count: int, bits: int) -> Int[Tensor, "*any"]:
    """Shift without copies of the sign."""
    return (x >> count) & ((1 << (bits - count)) - 1)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


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

    torch multiplies floats by a bool mask ten times slower than by floats on a CPU, so numpy converts the mask first.
    """
    if x.device.type != "cpu":
        return x * mask * scale
    dtype = np.float64 if x.dtype == torch.float64 else np.float32
    factors = torch.from_numpy(np.multiply(mask.numpy(), dtype(scale), dtype=dtype))
    return torch.mul(x, factors).to(x.dtype)
