"""Loads the native library and declares the signatures of its functions."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

from regard.native.build import NotBuiltError, build

CTYPES = {"p": ctypes.c_void_p, "l": ctypes.c_long, "i": ctypes.c_int, "f": ctypes.c_float, "d": ctypes.c_double}
SIGNATURES = {
    "packed_f32_size": "ll>",
    "pack_f32": "llplp",
    "packed_int8_size": "ll>",
    "pack_int8": "llpp",
    "packed_linear": "plplp",
    "attend": "p",
    "append_to_cache": "lllppplplli",
    "round_to_bf16": "llpl",
    "copy_cache_rows": "lpplppp",
    "release_cache_rows": "lplpl",
    "add_norm": "llpppp",
    "gated_activation": "llpip",
    "embed": "plpppp>",
    "run_stack": "lppppppp",
    "decode_step": "pppplpppppppp>",
    "block_count": "l>",
    "logsumexp": "llppp>",
    "topk": "llpplpp",
    "beam_topk": "lllpppppplpppp",
    "dropout": "llppp",
    "dropout_attention": "llllppp",
    "dropout_add": "llpppp",
    "dropout_add_backward": "llppp",
    "activation_dropout": "llpipp",
    "activation_dropout_backward": "llpippp",
    "cross_entropy_forward_backward": "llppdp",
    "rdrop_forward_backward": "llppddp",
    "training_attention_forward": "p",
    "training_attention_backward": "p",
}
"""The argument types of each function, see `CTYPES`. A > at the end: the function returns a long."""
BF16_SIGNATURES = {"packed_bf16_size": "ll>", "pack_bf16": "pllp", "gemm_bf16": "plllpppi"}
"""The same for the functions that exist only if the CPU has AVX-512 BF16."""


_build_lock = threading.Lock()


@cache
def _load_library() -> tuple[Any, str]:
    try:
        with _build_lock:  # several threads may get here at the same time
            return set_signatures(ctypes.CDLL(str(build()))), "in use"
    except (NotBuiltError, OSError, AttributeError) as error:  # AttributeError: a function is missing
        if "could not compile" in str(error):
            message = f"regard's native library is not used, torch is used instead: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        return None, str(error)


def set_signatures(library: ctypes.CDLL, names: Iterable[str] = SIGNATURES) -> ctypes.CDLL:
    """Declare the argument and return types of the library's functions."""
    for name in (*names, *(name for name in BF16_SIGNATURES if hasattr(library, name))):
        function = getattr(library, name)
        arguments, returns_long, _ = {**SIGNATURES, **BF16_SIGNATURES}[name].partition(">")
        function.argtypes = [CTYPES[letter] for letter in arguments]
        function.restype = ctypes.c_long if returns_long else None
    return library


def library() -> Any:
    """Return the native library, None if it is not `available`."""
    return _load_library()[0]


def available() -> bool:
    """Return whether this machine has the native library. The first call may build it."""
    return _load_library()[0] is not None


def status() -> str:
    """Return "in use", or the reason why the native library is not used."""
    return _load_library()[1]
