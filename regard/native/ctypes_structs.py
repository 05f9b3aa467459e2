"""What the compiled functions are told, as C has it: see `c/parts.h` and `c/block.c`, field by field."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from torch import Tensor

LONG, INT, FLOAT, POINTER = ctypes.c_long, ctypes.c_int, ctypes.c_float, ctypes.c_void_p


def pointer(x: Tensor | None) -> int | None:
    """Where a tensor's numbers are."""
    return None if x is None else x.data_ptr()


def of(kind: type, *names: str) -> list[tuple[str, type]]:
    """Fields of one kind."""
    return [(name, kind) for name in names]


class Matrix(ctypes.Structure):
    """A matrix in panels."""

    _fields_ = (*of(LONG, "outputs", "inputs"), *of(POINTER, "packed", "scale", "bias"), ("activation", INT))


class Given(ctypes.Structure):
    """A matrix as it stands in memory: where, and how far it is from one row, and one column, to the next."""

    _fields_ = (("numbers", POINTER), *of(LONG, "down", "right"))


class Norm(ctypes.Structure):
    """LayerNorm or RMSNorm."""

    _fields_ = (*of(POINTER, "weight", "bias"), ("epsilon", FLOAT), ("centred", INT))


class Embedding(ctypes.Structure):
    """What tokens are before the first block."""

    _fields_ = (
        *of(LONG, "dim", "vocabulary"),
        *of(POINTER, "table", "scales"),
        ("by", FLOAT),
        ("norm", POINTER),
    )


class Attention(ctypes.Structure):
    """What is asked of `attend`."""

    _fields_ = (
        *of(LONG, "rows", "heads", "sharing", "dim"),
        ("scale", FLOAT),
        ("causal", INT),
        ("query", POINTER),
        ("query_stride", LONG),
        *of(POINTER, "queries", "first_query", "key", "value"),
        ("half", INT),
        ("first_key", POINTER),
        *of(LONG, "row_stride", "head_stride", "key_stride"),
        *of(POINTER, "keys", "bias"),
        *of(LONG, "bias_row", "bias_head", "bias_query"),
        ("answer", POINTER),
    )


class Residual(ctypes.Structure):
    """The connection around a sublayer."""

    _fields_ = (("order", INT), ("norm", Norm), ("output_norm", Norm))


class Asking(ctypes.Structure):
    """An attention's own numbers."""

    _fields_ = (
        *of(Matrix, "project", "output"),
        *of(LONG, "heads", "key_heads", "dim"),
        ("scale", FLOAT),
        ("half", INT),
        ("residual", Residual),
    )


class Feedforward(ctypes.Structure):
    """A feed-forward layer."""

    _fields_ = (*of(INT, "gated", "activation"), *of(Matrix, "up", "down"), ("residual", Residual))


class Block(ctypes.Structure):
    """A block."""

    _fields_ = (("model", LONG), *of(Asking, "own", "across"), ("feedforward", Feedforward))


class Kept(ctypes.Structure):
    """Keys and values that a layer's cache holds."""

    _fields_ = (
        *of(POINTER, "key", "value"),
        ("half", INT),
        *of(LONG, "heads", "row_stride", "head_stride", "key_stride"),
    )


class Batch(ctypes.Structure):
    """What a batch is."""

    _fields_ = (
        *of(LONG, "tokens", "rows"),
        *of(POINTER, "lengths", "first"),
        ("causal", INT),
        *of(POINTER, "cosine", "sine", "bias"),
        *of(LONG, "bias_row", "bias_head", "bias_query"),
        *of(POINTER, "before", "keys"),
        ("texts", LONG),
        *of(POINTER, "source_keys", "asking", "first_asking"),
        *of(LONG, "begin", "row", "text"),
        *of(Kept, "own", "source"),
    )


class Chance(ctypes.Structure):
    """What dropout is drawn from: a seed, how many of 65,536 values are dropped, and the scale of the others."""

    _fields_ = (*of(ctypes.c_uint32, "low", "high"), ("dropped", INT), ("scale", FLOAT))


class Training(ctypes.Structure):
    """Attention in training, there and back: see `c/attention_back.c`."""

    _fields_ = (
        *of(LONG, "rows", "heads", "dim"),
        ("scale", FLOAT),
        ("causal", INT),
        *of(POINTER, "query", "key", "value"),
        *of(LONG, "query_stride", "key_stride", "value_stride"),
        *of(POINTER, "queries", "first_query", "keys", "first_key"),
        ("chance", Chance),
        ("longest", LONG),
        *of(POINTER, "answer", "query_gradient", "key_gradient", "value_gradient"),
    )


class Lengths:
    """The lengths of rows, and where each begins when they stand side by side."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths, self._begins = array("l", lengths), array("l", accumulate(lengths, initial=0))
        self.count, self.at = len(lengths), self._lengths.buffer_info()[0]
        self.begin_at = self._begins.buffer_info()[0]
        """The address of where they begin."""

    @property
    def longest(self) -> int:
        """The length of the longest row."""
        return max(self._lengths)


@lru_cache(maxsize=256)
def lengths_of(lengths: tuple[int, ...]) -> Lengths:
    """Lengths as C has them, made once for all blocks that ask for the same. Hold them as long as C works with them."""
    return Lengths(lengths)
