"""The C loops of word2vec and GloVe, compiled by the machine's own compiler when a training starts.

This takes about a second. The library is loaded from a new folder that only the user can read, and deleted at once, so
nothing is stored between runs. Without a compiler, or with the environment variable `REGARD_NATIVE=0`, the definitions
in numpy are used, which compute the same but are hundreds of times slower.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOURCES = Path(__file__).parent / "c"
FLAGS = (
    *("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"),
    *("-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden"),
)
LANES = 16
"""Rows have a multiple of this many numbers, and begin at a multiple of this many (64 bytes)."""
TIME_LIMIT = 120
DISABLED_VALUES = ("0", "off", "no", "false")

POINTER, LONG, DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class Word2VecJob(ctypes.Structure):
    """`struct word2vec_job` of word2vec.c."""

    _fields_ = (
        *((name, POINTER) for name in ("tokens",)),
        *((name, LONG) for name in ("start", "end", "num_tokens")),
        *((name, POINTER) for name in ("input", "output")),
        *((name, LONG) for name in ("stride", "window", "negative", "is_cbow")),
        *((name, POINTER) for name in ("keep", "alias_threshold", "alias")),
        ("vocabulary", LONG),
        *((name, POINTER) for name in ("path_starts", "path_nodes", "path_labels", "bag_starts", "bag_rows")),
        ("key", ctypes.c_uint64),
        *((name, DOUBLE) for name in ("lr", "min_lr", "first_step", "total_steps", "loss")),
        *((name, LONG) for name in ("loss_count", "num_kept")),
    )


class GloveJob(ctypes.Structure):
    """`struct glove_job` of glove.c."""

    _fields_ = (
        *((name, POINTER) for name in ("words", "contexts", "counts", "order")),
        *((name, LONG) for name in ("start", "end", "dim", "stride")),
        *((name, POINTER) for name in ("word_vectors", "context_vectors", "word_squares", "context_squares")),
        *((name, DOUBLE) for name in ("lr", "x_max", "alpha", "loss")),
    )


@cache
def load_kernels() -> tuple[Any, str]:
    """Compile and load the library. Return it with "in use", or None with the reason why there is none."""
    if os.environ.get("REGARD_NATIVE", "1").lower() in DISABLED_VALUES:
        return None, "disabled by the environment variable REGARD_NATIVE"
    if sys.platform == "win32":
        return None, "not supported on Windows"
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None, "no C compiler found: install gcc"
    try:
        with tempfile.TemporaryDirectory(prefix="regard-vectors-") as folder:
            target = Path(folder) / "vectors.so"
            sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
            command = [compiler, *FLAGS, *sources, "-lm", "-o", str(target)]
            process = subprocess.run(command, capture_output=True, timeout=TIME_LIMIT, check=False)
            if process.returncode:
                return None, f"{compiler} failed: {process.stderr.decode(errors='replace').strip()[:500]}"
            library = ctypes.CDLL(str(target))
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{compiler} failed: {error}"
    for name, job in (("train_word2vec", Word2VecJob), ("train_glove", GloveJob)):
        function = getattr(library, name)
        function.argtypes, function.restype = [ctypes.POINTER(job)], ctypes.c_int
    return library, "in use"


def aligned_rows(rows: int, dim: int) -> NDArray[np.float32]:
    """Return a zero matrix (rows × dim, rounded up to a multiple of `LANES`) whose rows are aligned."""
    stride = -(-dim // LANES) * LANES
    memory = np.zeros(rows * stride + LANES, np.float32)
    offset = -(memory.ctypes.data // 4) % LANES
    return memory[offset : offset + rows * stride].reshape(rows, stride)


def address(array: NDArray[Any] | None) -> int | None:
    """Return the address of a contiguous array, None for None."""
    if array is None:
        return None
    if not array.flags.c_contiguous:
        raise ValueError("expected a contiguous array")
    return array.ctypes.data
