"""Products in numbers of sixteen bits (bfloat16) for training, where the CPU has instructions for them.

What comes and goes is float32, so nothing else has to know: numbers are rounded where they are multiplied, and added up
in float32. See `c/half.c`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.native.ctypes_structs import Given, pointer
from regard.native.library import HALF, available, library

Rows = Float[Tensor, "rows depth"]
Columns = Float[Tensor, "depth columns"]


def half() -> bool:
    """Whether this machine has them."""
    return available() and all(hasattr(library(), name) for name in HALF)


@dataclass(frozen=True)
class Panels:
    """A matrix, rounded and laid out for products with others."""

    packed: Int[Tensor, " pairs"]
    depth: int
    columns: int

    @classmethod
    def of(cls, matrix: Columns) -> Panels:
        """The matrix may stand turned round."""
        depth, columns = matrix.shape
        there = _given(matrix)
        packed = torch.empty(library().packed_half_size(columns, depth), dtype=torch.int32)
        library().pack_half(ctypes.addressof(there), columns, depth, packed.data_ptr())
        return cls(packed, depth, columns)


def multiply(
    x: Rows, matrix: Panels, bias: Float[Tensor, " columns"] | None = None, to: Tensor | None = None, add: bool = False
) -> Float[Tensor, "rows columns"]:
    """x·matrix + bias, in new memory or where `to` says; or, if `add`, added to what stands there."""
    found = torch.empty(len(x), matrix.columns, dtype=torch.float32) if to is None else to
    there = _given(x)
    sizes = (len(x), matrix.columns, matrix.depth)
    library().multiply_half(
        ctypes.addressof(there), *sizes, matrix.packed.data_ptr(), pointer(bias), found.data_ptr(), add
    )
    return found


def _given(x: Tensor) -> Given:
    assert x.dtype == torch.float32
    assert 1 in x.stride()
    return Given(x.data_ptr(), *x.stride())


def _lines(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def linear(
    x: Float[Tensor, "rows input"], weight: Float[Tensor, "output input"], bias: Float[Tensor, " output"] | None
) -> Float[Tensor, "rows output"]:
    """x·weightᵀ + bias."""
    return Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]


class Linear(torch.autograd.Function):
    """A layer there and back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What the layer says."""
        x = _lines(x)
        ctx.save_for_backward(x, weight)
        return multiply(x, Panels.of(weight.detach().t()), bias)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the vectors, the matrix and the bias."""
        x, weight = ctx.saved_tensors
        said = _lines(gradient[0])
        wanted = ctx.needs_input_grad
        return (
            multiply(said, Panels.of(weight)) if wanted[0] else None,
            multiply(said.t(), Panels.of(x)) if wanted[1] else None,
            said.sum(dim=0) if wanted[2] else None,
        )
