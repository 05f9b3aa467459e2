"""Memory that was used stays at hand; what is not used again does not.

What the scores of a large vocabulary take up is asked for at every token and given back right after, and so is what a
step of training works with. The C library returns blocks of that size to the system, which clears them page by page
when they are asked for again: with beams and bytes that took half of the time, and a sixth of a step of training.

oneDNN, on the other hand, keeps what it has compiled for each shape that it was given, up to 1,024 of them, all over
the heap. Batches of text hardly ever have the same shape twice: a run of training grew to gigabytes.

And weights that are mapped from a file stay in memory beside the layout that they were brought into, until the last
tensor of the file is let go.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

from torch import Tensor

LARGE = (64 << 20, 32 << 20)
"""Blocks up to this many bytes come from the heap; glibc before 2.35 takes no more than the second."""
FREE = 512 << 20
"""So many free bytes at the end of the heap are kept."""
KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
FEW = 128
"""So many are more than a step needs."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of these settings in malloc.h
_PAGEOUT = 21  # what madvise is told, from Linux 5.4 on


def keep_freed() -> bool:
    """Let this process keep freed memory for what it asks for next; whether its C library could be told so.

    Where the environment has settings of its own (MALLOC_…_THRESHOLD_), whoever started the process has decided.
    """
    decided = any(f"MALLOC_{name}_THRESHOLD_" in os.environ for name in ("TRIM", "MMAP"))
    if decided or sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # only glibc has it
        return False
    large = any(library.mallopt(_MMAP_THRESHOLD, size) == 1 for size in LARGE)
    return library.mallopt(_TRIM_THRESHOLD, FREE) == 1 and large


def set_aside(x: Tensor) -> bool:
    """Let the system take the memory of numbers that will hardly be read again; whether it could be told so.

    They stay what they are: what was mapped from a file is read from there again if somebody asks for it. Parts of a
    page that others use stay in memory.
    """
    page = mmap.PAGESIZE
    begin, end = -(-x.data_ptr() // page) * page, (x.data_ptr() + x.nbytes) // page * page
    if sys.platform != "linux" or end <= begin:
        return False
    return ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _PAGEOUT) == 0


def keep_few_kernels() -> None:
    """Let oneDNN forget kernels of shapes that do not come again. It asks once, when it first computes."""
    os.environ.setdefault(KERNELS, str(FEW))
