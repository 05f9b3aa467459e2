"""bf16 matrix multiplication for training, on CPUs with AVX-512 BF16.

Inputs and outputs are float32, so the calling code stays the same. The kernel rounds the factors to bf16 and
accumulates the products in float32. See `c/gemm_bf16.c`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.native.ctypes_structs import StridedMatrix, pointer
from regard.native.library import BF16_SIGNATURES, available, library

LeftMatrix = Float[Tensor, "rows depth"]
RightMatrix = Float[Tensor, "depth columns"]


def bf16_available() -> bool:
    """Return whether the native library has the bf16 kernels."""
    return available() and all(hasattr(library(), name) for name in BF16_SIGNATURES)


@dataclass(frozen=True)
class PackedBf16Matrix:
    """The right factor of a matrix multiplication, rounded to bf16 and packed."""

    packed: Int[Tensor, " pairs"]
    depth: int
    columns: int

    @classmethod
    def pack(cls, matrix: RightMatrix) -> PackedBf16Matrix:
        """Pack a matrix. It may be a transposed view."""
        depth, columns = matrix.shape
        strided = _strided(matrix)
        packed = torch.empty(library().packed_bf16_size(columns, depth), dtype=torch.int32)
        library().pack_bf16(ctypes.addressof(strided), columns, depth, packed.data_ptr())
        return cls(packed, depth, columns)


def matmul(
    x: LeftMatrix,
    matrix: PackedBf16Matrix,
    bias: Float[Tensor, " columns"] | None = None,
    out: Tensor | None = None,
    accumulate: bool = False,
) -> Float[Tensor, "rows columns"]:
    """Return x·matrix + bias, in a new tensor or in `out`. If `accumulate`, add the product to `out`."""
    result = torch.empty(len(x), matrix.columns, dtype=torch.float32) if out is None else out
    strided = _strided(x)
    sizes = (len(x), matrix.columns, matrix.depth)
    library().gemm_bf16(
        ctypes.addressof(strided), *sizes, matrix.packed.data_ptr(), pointer(bias), result.data_ptr(), accumulate
    )
    return result


def _strided(x: Tensor) -> StridedMatrix:
    assert x.dtype == torch.float32
    assert 1 in x.stride()
    return StridedMatrix(x.data_ptr(), *x.stride())


def _contiguous_rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def linear(
    x: Float[Tensor, "rows input"], weight: Float[Tensor, "output input"], bias: Float[Tensor, " output"] | None
) -> Float[Tensor, "rows output"]:
    """Return x·weightᵀ + bias, with gradients."""
    return LinearFunction.apply(x, weight, bias)  # type: ignore[no-untyped-call]


class LinearFunction(torch.autograd.Function):
    """A linear layer in bf16, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return x·weightᵀ + bias."""
        x = _contiguous_rows(x)
        ctx.save_for_backward(x, weight)
        return matmul(x, PackedBf16Matrix.pack(weight.detach().t()), bias)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients with respect to x, the weight and the bias."""
        x, weight = ctx.saved_tensors
        output_gradient = _contiguous_rows(gradient[0])
        needed = ctx.needs_input_grad
        return (
            matmul(output_gradient, PackedBf16Matrix.pack(weight)) if needed[0] else None,
            matmul(output_gradient.t(), PackedBf16Matrix.pack(x)) if needed[1] else None,
            output_gradient.sum(dim=0) if needed[2] else None,
        )
