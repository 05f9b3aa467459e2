"""Settings of malloc and of oneDNN's kernel cache; releasing the pages of memory-mapped weights.

The logits of a large vocabulary are allocated at every decode step and freed right after, and so are the intermediate
tensors of a training step. glibc returns blocks of that size to the operating system, which zeroes them page by
page when they are allocated again: with beam search at int8 that took half of the time, in training a sixth of a step.

oneDNN caches the kernel that it compiled for each shape, up to 1,024 of them, scattered over the heap. Batches of text
hardly ever have the same shape twice: a training run grew to gigabytes.

Memory-mapped weights stay in memory beside their packed copies until the last tensor of the file is freed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

from torch import Tensor

MMAP_THRESHOLDS = (64 << 20, 32 << 20)
"""Blocks up to this many bytes come from the heap. glibc before 2.35 accepts at most the second value."""
TRIM_THRESHOLD = 512 << 20
"""Up to this many free bytes at the end of the heap are retained."""
ONEDNN_CACHE_VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
ONEDNN_CACHE_CAPACITY = 128
"""More kernels than one step needs."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # the names of these settings in malloc.h


def retain_freed_memory() -> bool:
    """Let malloc retain freed memory for the next allocations. Return whether the C library accepted the settings.

    The environment variables MALLOC_…_THRESHOLD_ take precedence: if one is set, nothing is changed.
    """
    set_by_user = any(f"MALLOC_{name}_THRESHOLD_" in os.environ for name in ("TRIM", "MMAP"))
    if set_by_user or sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # only glibc has it
        return False
    mmap_set = any(library.mallopt(_M_MMAP_THRESHOLD, size) == 1 for size in MMAP_THRESHOLDS)
    return library.mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD) == 1 and mmap_set


class MappedFiles:
    """The address ranges at which the files of a folder are mapped into this process, at the time of construction."""

    def __init__(self, folder: Path) -> None:
        table, files = Path("/proc/self/maps"), {os.path.realpath(path) for path in folder.iterdir()}
        lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
        fields = (line.split(maxsplit=5) for line in lines)
        private = [span for span, mode, *_, name in fields if mode.endswith("p") and name in files]
        self.ranges = [tuple(int(address, 16) for address in span.split("-")) for span in private]

    def release(self, x: Tensor) -> bool:
        """Release the pages of a tensor that is mapped from one of the files. Return whether they were released.

        The next access reads them from the file again. Changes of the tensor in memory are lost, so this is only for
        weights that were just loaded.
        """
        spans = (stride * (count - 1) for count, stride in zip(x.shape, x.stride(), strict=True))
        begin, end = x.data_ptr(), x.data_ptr() + x.itemsize * (1 + sum(spans))
        begin, end = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if end <= begin or not any(first <= begin and end <= last for first, last in self.ranges):
            return False
        error = ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)
        return bool(error == 0)


def limit_onednn_cache() -> None:
    """Limit oneDNN's cache of compiled kernels. oneDNN reads the setting once, at its first computation."""
    os.environ.setdefault(ONEDNN_CACHE_VARIABLE, str(ONEDNN_CACHE_CAPACITY))
