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
from pathlib import Path

from torch import Tensor

LARGE = (64 << 20, 32 << 20)
"""Blocks up to this many bytes come from the heap; glibc before 2.35 takes no more than the second."""
FREE = 512 << 20
"""So many free bytes at the end of the heap are kept."""
KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
FEW = 128
"""So many are more than a step needs."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names of these settings in malloc.h


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


class MappedFiles:
    """Where the files of a folder are mapped into this process, as it was when this was made."""

    def __init__(self, folder: Path) -> None:
        table, files = Path("/proc/self/maps"), {str(path.resolve()) for path in folder.iterdir()}
        lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
        fields = (line.split(maxsplit=5) for line in lines)
        private = [place for place, how, *_, name in fields if how.endswith("p") and name in files]
        self.places = [tuple(int(edge, 16) for edge in place.split("-")) for place in private]

    def let_go(self, x: Tensor) -> bool:
        """Give back the memory of numbers that were read from one of the files; whether it was given back.

        Whoever asks for them again gets them from the file. What was written in their place is lost: this is for those
        who have just opened the folder, and nobody else.
        """
        spans = (stride * (count - 1) for count, stride in zip(x.shape, x.stride(), strict=True))
        begin, end = x.data_ptr(), x.data_ptr() + x.itemsize * (1 + sum(spans))
        begin, end = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if end <= begin or not any(first <= begin and end <= last for first, last in self.places):
            return False
        told = ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)
        return bool(told == 0)


def keep_few_kernels() -> None:
    """Let oneDNN forget kernels of shapes that do not come again. It asks once, when it first computes."""
    os.environ.setdefault(KERNELS, str(FEW))
