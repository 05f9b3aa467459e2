"""Self-test of a freshly built library: `python -m regard.native.selftest LIBRARY`. Exits with 0 on success.

Matrix multiplication with AVX-512 is compiled if the CPU reports the features. Before it is used, it is tried in a
subprocess: if it crashes or gives wrong results there, nothing else is affected.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.native.ctypes_structs import PackedMatrix, StridedMatrix, pointer
from regard.native.library import BF16_SIGNATURES, set_signatures

TESTED_FUNCTIONS = ("packed_f32_size", "pack_f32", "packed_int8_size", "pack_int8", "packed_linear")
SIZES = ((1, 16, 2), (5, 40, 33), (12, 31, 300), (29, 7, 64), (100, 272, 515))
"""Rows, outputs and inputs: full tiles, and tiles that are incomplete in each direction."""
TOLERANCE = 1e-4
"""Relative to the largest value: far more than float32 rounding errors, far less than a wrong result."""


def passes(path: str) -> bool:
    """Return whether all matrix multiplications of the library are correct."""
    library = set_signatures(ctypes.CDLL(path), TESTED_FUNCTIONS)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        has_bf16 = all(hasattr(library, name) for name in BF16_SIGNATURES)
        tests = (_products, _bf16_products) if has_bf16 else (_products,)
        return all(_is_close(*pair) for test in tests for size in SIZES for pair in test(library, *size))


def _products(library: ctypes.CDLL, rows: int, outputs: int, inputs: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the library's result and the expected one, for float32, then for int8."""
    x = torch.randn(rows, inputs)
    weight = torch.randn(outputs, inputs)
    packed = torch.empty(library.packed_f32_size(outputs, inputs))
    library.pack_f32(outputs, inputs, weight.data_ptr(), inputs, packed.data_ptr())
    yield _product(library, x, PackedMatrix(outputs, inputs, packed.data_ptr())), x @ weight.T
    qweight = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
    scale = torch.rand(outputs) + 0.5
    packed = torch.empty(library.packed_int8_size(outputs, inputs), dtype=torch.int8)
    library.pack_int8(outputs, inputs, qweight.data_ptr(), packed.data_ptr())
    matrix = PackedMatrix(outputs, inputs, packed.data_ptr(), pointer(scale))
    # Integers with an absolute maximum of 127 are quantized without rounding.
    integers = torch.randint(-127, 128, (rows, inputs)).index_fill_(1, torch.tensor(0), 127).float()
    yield _product(library, integers, matrix), integers @ (qweight * scale[:, None]).T


def _bf16_products(library: ctypes.CDLL, rows: int, columns: int, depth: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the same for bf16, with either factor transposed or not."""
    a, b = torch.randn(rows, depth).bfloat16().float(), torch.randn(depth, columns).bfloat16().float()
    for left in (a, a.t().contiguous().t()):
        for right in (b, b.t().contiguous().t()):
            packed = torch.empty(library.packed_bf16_size(columns, depth), dtype=torch.int32)
            output = torch.empty(rows, columns)
            left_struct = StridedMatrix(left.data_ptr(), *left.stride())
            right_struct = StridedMatrix(right.data_ptr(), *right.stride())
            library.pack_bf16(ctypes.addressof(right_struct), columns, depth, packed.data_ptr())
            pointers = (packed.data_ptr(), None, output.data_ptr())
            library.gemm_bf16(ctypes.addressof(left_struct), rows, columns, depth, *pointers, False)
            yield output, a @ b


def _product(library: ctypes.CDLL, x: Tensor, matrix: PackedMatrix) -> Tensor:
    output = torch.empty(x.shape[0], matrix.outputs)
    library.packed_linear(ctypes.addressof(matrix), x.shape[0], x.data_ptr(), x.stride(0), output.data_ptr())
    return output


def _is_close(output: Tensor, expected: Tensor) -> bool:
    return bool((output - expected).abs().max() <= TOLERANCE * expected.abs().max())


if __name__ == "__main__":
    sys.exit(not passes(sys.argv[1]))
