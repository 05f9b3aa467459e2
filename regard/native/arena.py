"""Memory for matrices, in large pages; for what is filled bit by bit, in small ones; for what is made all the time.

A token that is written reads every weight once, and with pages of 4 KB a core looks up ten thousand addresses on the
way: with pages of 2 MB it reads a fifth more in the same time. Only large pieces of memory can have them, so matrices
stand side by side in some, each of which is given back when the last of its matrices is.
"""

from __future__ import annotations

import math
import mmap
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

PIECE = 32 << 20
"""Bytes of a piece. What is not used of it is never touched, and takes no memory."""
SMALL = 4 << 20
"""Bytes that are not worth pages of their own, if they will be filled: the heap keeps what was freed, and pages have to
be cleared again."""
PAGES = 64 << 10
"""The same, if most of them may stay empty."""
PAGE = mmap.PAGESIZE
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


def sparse(shape: tuple[int, ...], dtype: torch.dtype, small: int) -> Tensor:
    """Room for numbers, which takes memory only where something is written, page by page, and gives it back with the
    tensor. Up to `small` bytes it is ordinary memory. Nobody says what stands in it."""
    count = math.prod(shape)
    if count * dtype.itemsize < small:
        return torch.empty(shape, dtype=dtype, device="cpu")
    memory = _memory(count * dtype.itemsize)
    with suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


class Again:
    """Memory that is used again as soon as nobody holds the tensor that it was used for.

    The scores of a vocabulary are made at every token, each time a little smaller or larger: on the heap, other things
    come to stand where they stood, and they get new memory many times over.
    """

    least, most = 1 << 20, 64 << 20
    """Bytes of what is worth it, and of what is not worth keeping."""
    several = 4
    """So many pieces are kept at most."""

    def __init__(self) -> None:
        self._pieces: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def room(self, *shape: int) -> Float[Tensor, ...]:
        """Room for float32 numbers."""
        count = math.prod(shape)
        if not self.least <= 4 * count <= self.most:
            return torch.empty(shape, dtype=torch.float32, device="cpu")
        with self._lock:
            memory = self._free(4 * count)
            return torch.frombuffer(memory, dtype=torch.float32, count=count).view(shape)

    def _free(self, size: int) -> mmap.mmap:
        """The smallest piece that nobody holds and that fits, or a new one in place of those that nobody holds.

        One that is more than twice as large does not fit: whoever keeps a small result would keep all of it.
        """
        held = list(zip(self._pieces, _holders(self._pieces), strict=True))
        fitting = [piece for piece, holders in held if holders == NOBODY and size <= len(piece) <= 2 * size]
        if fitting:
            return min(fitting, key=len)
        self._pieces = [piece for piece, holders in held if holders > NOBODY][1 - self.several :]
        self._pieces.append(_memory(size))
        return self._pieces[-1]


def _holders(pieces: list[Any]) -> list[int]:
    return [sys.getrefcount(piece) for piece in pieces]


NOBODY = _holders([object()])[0]
"""What Python counts if only a list holds something, and whoever counts."""
again = Again()


def _memory(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _piece(size: int) -> mmap.mmap:
    memory = _memory(size)
    with suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
