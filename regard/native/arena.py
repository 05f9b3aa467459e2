"""Memory: a huge-page arena for weights, sparse buffers for KV caches, a scratch pool for logits.

A decode step reads every weight once. With pages of 4 KB a core translates ten thousand addresses on the way; with huge
pages of 2 MB it reads a fifth more in the same time. Only large blocks of memory can have huge pages, so several
weights share an arena, which is released together with the last of them.
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


class ScratchPool:
    """A pool of buffers. A buffer is reused as soon as the tensor on it is no longer referenced.

    Logits are allocated at every decode step, each time a little smaller or larger. On the heap other allocations would
    take their place in between, and the logits would get new memory again and again.
    """

    min_bytes, max_bytes = 1 << 20, 64 << 20
    """Tensors outside of this range of sizes are ordinary tensors."""
    max_buffers = 4
    """The pool holds at most this many buffers."""

    def __init__(self) -> None:
        self._buffers: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def empty(self, *shape: int) -> Float[Tensor, ...]:
        """Return an uninitialized float32 tensor."""
        count = math.prod(shape)
        if not self.min_bytes <= 4 * count <= self.max_bytes:
            return torch.empty(shape, dtype=torch.float32, device="cpu")
        with self._lock:
            memory = self._acquire(4 * count)
            return torch.frombuffer(memory, dtype=torch.float32, count=count).view(shape)

    def _acquire(self, size: int) -> mmap.mmap:
        """Return the smallest unreferenced buffer that fits, or a new one that replaces all unreferenced buffers.

        A buffer of more than twice the size does not fit: a small result would keep all of it alive.
        """
        counted = list(zip(self._buffers, _refcounts(self._buffers), strict=True))
        fitting = [buffer for buffer, count in counted if count == UNUSED_REFCOUNT and size <= len(buffer) <= 2 * size]
        if fitting:
            return min(fitting, key=len)
        self._buffers = [buffer for buffer, count in counted if count > UNUSED_REFCOUNT][1 - self.max_buffers :]
        self._buffers.append(_anonymous_mmap(size))
        return self._buffers[-1]


def _refcounts(buffers: list[Any]) -> list[int]:
    return [sys.getrefcount(buffer) for buffer in buffers]


UNUSED_REFCOUNT = _refcounts([object()])[0]
"""The reference count of an object that only a list refers to, as `_refcounts` sees it."""
scratch_pool = ScratchPool()


def _anonymous_mmap(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _huge_page_mmap(size: int) -> mmap.mmap:
    memory = _anonymous_mmap(size)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
