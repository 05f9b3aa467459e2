"""Memory: a huge-page arena for weights, sparse buffers for KV caches.

A decode step reads every weight once. With pages of 4 KB a core translates ten thousand addresses on the way; with huge
pages of 2 MB it reads a fifth more in the same time. Only large blocks of memory can have huge pages, so several
weights share an arena, which is released together with the last of them.
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

ARENA_BYTES = 32 << 20
"""Size of an arena. Its unused end is never touched and uses no memory."""
DENSE_MMAP_BYTES = 4 << 20
"""From this size on, a tensor that will be filled gets its own mmap. Below it the heap is faster: it reuses freed
memory, while the operating system has to zero new pages."""
SPARSE_MMAP_BYTES = 64 << 10
"""The same for a tensor that may stay mostly empty."""
PAGE_BYTES = mmap.PAGESIZE
CACHE_LINE_BYTES = 64
"""Weights are aligned to cache lines, so no two of them share one."""


class CurrentArena:
    """The arena that is being filled. The tensors in it hold the only strong references."""

    memory: weakref.ref[mmap.mmap] | None = None
    used = 0


_current, _lock = CurrentArena(), threading.Lock()


def allocate(count: int, dtype: torch.dtype) -> Shaped[Tensor, " count"]:
    """Return an uninitialized tensor of `count` elements (at least one) in the current arena, or in a new one."""
    size = count * dtype.itemsize
    with _lock:
        memory = None if _current.memory is None else _current.memory()
        if memory is None or _current.used + size > len(memory):
            memory = _huge_page_mmap(max(ARENA_BYTES, size))
            _current.memory, _current.used = weakref.ref(memory), 0
        tensor = torch.frombuffer(memory, dtype=dtype, count=count, offset=_current.used)
        _current.used += -(-size // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
    return tensor


def allocate_sparse(shape: tuple[int, ...], dtype: torch.dtype, mmap_from_bytes: int) -> Tensor:
    """Return an uninitialized tensor that uses memory only for the pages that are written, until it is freed.

    Below `mmap_from_bytes` bytes it is an ordinary tensor.
    """
    count = math.prod(shape)
    if count * dtype.itemsize < mmap_from_bytes:
        return torch.empty(shape, dtype=dtype, device="cpu")
    memory = _anonymous_mmap(count * dtype.itemsize)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


def _anonymous_mmap(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _huge_page_mmap(size: int) -> mmap.mmap:
    memory = _anonymous_mmap(size)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
