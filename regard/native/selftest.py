"""Whether a library that was just built computes what it should: `python -m regard.native.selftest LIBRARY`.

Products in registers of 512 bits are compiled for CPUs that say they have them. Before they are used, a process of its
own tries them: should they crash or err there, nothing else does. It ends with 0 if all is well.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.native.ctypes_structs import Given, Matrix, pointer
from regard.native.library import HALF, typed

USED = ("packed_size", "pack", "packed_bytes_size", "pack_bytes", "apply")
SIZES = ((1, 16, 2), (5, 40, 33), (12, 31, 300), (29, 7, 64), (100, 272, 515))
"""Rows, outputs and inputs: full tiles, and tiles that end early in each direction."""
NEAR = 1e-4
"""Of the largest number: far more than float32 rounds away, far less than a mistake."""


def proved(place: str) -> bool:
    """Whether all products of the library are right."""
    library = typed(ctypes.CDLL(place), USED)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        makes = (_products, _half_products) if all(hasattr(library, name) for name in HALF) else (_products,)
        return all(_near(*pair) for make in makes for size in SIZES for pair in make(library, *size))


def _products(library: ctypes.CDLL, rows: int, outputs: int, inputs: int) -> Iterator[tuple[Tensor, Tensor]]:
    """What the library says, and what is right: in floats, then in bytes."""
    x = torch.randn(rows, inputs)
    weight = torch.randn(outputs, inputs)
    packed = torch.empty(library.packed_size(outputs, inputs))
    library.pack(outputs, inputs, weight.data_ptr(), inputs, packed.data_ptr())
    yield _product(library, x, Matrix(outputs, inputs, packed.data_ptr())), x @ weight.T
    levels = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
    scale = torch.rand(outputs) + 0.5
    packed = torch.empty(library.packed_bytes_size(outputs, inputs), dtype=torch.int8)
    library.pack_bytes(outputs, inputs, levels.data_ptr(), packed.data_ptr())
    matrix = Matrix(outputs, inputs, packed.data_ptr(), pointer(scale))
    whole = torch.randint(-127, 128, (rows, inputs)).index_fill_(1, torch.tensor(0), 127).float()
    yield _product(library, whole, matrix), whole @ (levels * scale[:, None]).T


def _half_products(library: ctypes.CDLL, rows: int, columns: int, depth: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same for numbers of sixteen bits, with either matrix turned round."""
    a, b = torch.randn(rows, depth).bfloat16().float(), torch.randn(depth, columns).bfloat16().float()
    for left in (a, a.t().contiguous().t()):
        for right in (b, b.t().contiguous().t()):
            packed = torch.empty(library.packed_half_size(columns, depth), dtype=torch.int32)
            found = torch.empty(rows, columns)
            it, other = Given(left.data_ptr(), *left.stride()), Given(right.data_ptr(), *right.stride())
            library.pack_half(ctypes.addressof(other), columns, depth, packed.data_ptr())
            at = (packed.data_ptr(), None, found.data_ptr())
            library.multiply_half(ctypes.addressof(it), rows, columns, depth, *at, False)
            yield found, a @ b


def _product(library: ctypes.CDLL, x: Tensor, matrix: Matrix) -> Tensor:
    found = torch.empty(x.shape[0], matrix.outputs)
    library.apply(ctypes.addressof(matrix), x.shape[0], x.data_ptr(), x.stride(0), found.data_ptr())
    return found


def _near(found: Tensor, right: Tensor) -> bool:
    return bool((found - right).abs().max() <= NEAR * right.abs().max())


if __name__ == "__main__":
    sys.exit(not proved(sys.argv[1]))
