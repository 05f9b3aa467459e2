"""Memory for matrices, in large pages, and for what is filled bit by bit, in small ones.

A token that is written reads every weight once, and with pages of 4 KB a core looks up ten thousand addresses on the
way: with pages of 2 MB it reads a fifth more in the same time. Only large pieces of memory can have them, so matrices
stand side by side in some, each of which is given back when the last of its matrices is.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from contextlib import suppress

import torch
from jaxtyping import Shaped
from torch import Tensor

PIECE = 32 << 20
"""Bytes of a piece. What is not used of it is never touched, and takes no memory."""
SMALL = 4 << 20
"""Bytes that are not worth pages of their own, if they will be filled: the heap keeps what was freed, and pages have to
be cleared again."""
PAGES = 64 << 10
"""The same, if most of them may stay empty."""
LINE = 64
"""Bytes that a CPU fetches together: no two matrices share them."""


class Last:
    """The piece that is being filled; its matrices hold it."""

    memory: weakref.ref[mmap.mmap] | None = None
    used = 0


_last, _lock = Last(), threading.Lock()


def room(count: int, dtype: torch.dtype) -> Shaped[Tensor, " count"]:
    """Room for so many numbers, one at least."""
    size = count * dtype.itemsize
    with _lock:
        memory = None if _last.memory is None else _last.memory()
        if memory is None or _last.used + size > len(memory):
            memory = _piece(max(PIECE, size))
            _last.memory, _last.used = weakref.ref(memory), 0
        found = torch.frombuffer(memory, dtype=dtype, count=count, offset=_last.used)
        _last.used += -(-size // LINE) * LINE
    return found


def zeros(shape: tuple[int, ...], dtype: torch.dtype, small: int) -> Tensor:
    """Zeros, which take memory only where something is written, page by page, and give it back with the tensor.

    Up to `small` bytes they are ordinary ones.
    """
    count = math.prod(shape)
    if count * dtype.itemsize < small:
        return torch.zeros(shape, dtype=dtype, device="cpu")
    memory = _memory(count * dtype.itemsize)
    with suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


def _memory(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _piece(size: int) -> mmap.mmap:
    memory = _memory(size)
    with suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
