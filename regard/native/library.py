"""The library, loaded, with the types of its functions."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

from regard.native.build import NotBuiltError, build

TYPES = {"p": ctypes.c_void_p, "l": ctypes.c_long, "i": ctypes.c_int, "f": ctypes.c_float, "d": ctypes.c_double}
FUNCTIONS = {
    "packed_size": "ll>",
    "panel_size": ">",
    "pack": "llplp",
    "together_size": ">",
    "added_size": ">",
    "packed_bytes_size": "ll>",
    "pack_bytes": "llpp",
    "apply": "plplp",
    "attend": "p",
    "keep": "lllppplplli",
    "round_to_half": "llpl",
    "inherit": "lpplpp",
    "move": "lpplpppp",
    "clear": "lplpl",
    "add_and_normalise": "llpppp",
    "gate": "llpip",
    "embed": "plpppp>",
    "run_stack": "lppppppp",
    "read_next": "pppplpppppppp>",
    "blocks_size": "l>",
    "log_sum": "llppp>",
    "best": "llpplpp",
    "continuations": "lllpppppplpppp",
    "drop": "lppp",
    "add_dropped": "llpppp",
    "add_dropped_back": "llppp",
    "bend": "lpipp",
    "bend_back": "lpippp",
    "lose": "llppdp",
    "lose_twice": "llppddp",
    "attend_in_training": "p",
    "attend_back": "p",
}
"""The arguments of each: a pointer, a long, an int, a float, a double. Behind some: > (they return a long)."""
HALF = {"packed_half_size": "ll>", "pack_half": "pllp", "multiply_half": "plllpppi"}
"""The same, of those that are there only if the CPU computes in bfloat16."""


_building = threading.Lock()


@cache
def _found() -> tuple[Any, str]:
    try:
        with _building:  # several threads may be the first to ask
            return typed(ctypes.CDLL(str(build()))), "in use"
    except (NotBuiltError, OSError) as error:
        if "could not compile" in str(error):
            warnings.warn(f"regard's compiled parts are not used: {error}", RuntimeWarning, stacklevel=3)
        return None, str(error)


def typed(library: ctypes.CDLL, names: Iterable[str] = FUNCTIONS) -> ctypes.CDLL:
    """A library whose functions know what they take and return."""
    for name in (*names, *(name for name in HALF if hasattr(library, name))):
        function = getattr(library, name)
        taken, returned, _ = {**FUNCTIONS, **HALF}[name].partition(">")
        function.argtypes = [TYPES[letter] for letter in taken]
        function.restype = ctypes.c_long if returned else None
    return library


def library() -> Any:
    """The compiled functions. Ask first whether they are `available`."""
    return _found()[0]


def available() -> bool:
    """Whether this machine has the compiled parts; the first to ask waits while they are built."""
    return _found()[0] is not None


def status() -> str:
    """Whether they are in use, and if not, why not."""
    return _found()[1]
