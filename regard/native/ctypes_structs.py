"""ctypes mirrors of the C structs, field by field: see `c/types.h`, `c/block.c`, `c/gemm_bf16.c`, `c/dropout_rng.h` and
`c/training_attention.c`."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from torch import Tensor

LONG, INT, FLOAT, POINTER = ctypes.c_long, ctypes.c_int, ctypes.c_float, ctypes.c_void_p


def pointer(x: Tensor | None) -> int | None:
    """Return the address of a tensor's data, or None."""
    return None if x is None else x.data_ptr()


def fields(ctype: type, *names: str) -> list[tuple[str, type]]:
    """Return fields of one type, for `_fields_`."""
    return [(name, ctype) for name in names]


class PackedMatrix(ctypes.Structure):
    """One linear layer: weights packed in panels (float32, or int8 with scales), bias and activation."""

    _fields_ = (*fields(LONG, "outputs", "inputs"), *fields(POINTER, "packed", "scale", "bias"), ("activation", INT))


class StridedMatrix(ctypes.Structure):
    """A matrix in memory: its address and its strides."""

    _fields_ = (("data", POINTER), *fields(LONG, "row_stride", "column_stride"))


class Norm(ctypes.Structure):
    """LayerNorm or RMSNorm."""

    _fields_ = (*fields(POINTER, "weight", "bias"), ("epsilon", FLOAT), ("is_layer_norm", INT))


class Embedding(ctypes.Structure):
    """The token embedding: table, scales of its rows if it is int8, scale of the result, norm."""

    _fields_ = (
        *fields(LONG, "dim", "vocabulary"),
        *fields(POINTER, "table", "row_scales"),
        ("scale", FLOAT),
        ("norm", POINTER),
    )


class AttentionArguments(ctypes.Structure):
    """The arguments of `attend`."""

    _fields_ = (
        *fields(LONG, "sequences", "heads", "heads_per_kv_head", "head_dim"),
        ("scale", FLOAT),
        ("causal", INT),
        ("query", POINTER),
        ("query_stride", LONG),
        *fields(POINTER, "query_lengths", "query_offsets", "key", "value"),
        ("bf16", INT),
        ("key_offsets", POINTER),
        *fields(LONG, "batch_stride", "head_stride", "key_stride"),
        *fields(POINTER, "key_lengths", "bias"),
        *fields(LONG, "bias_batch_stride", "bias_head_stride", "bias_query_stride"),
        ("output", POINTER),
    )


class Residual(ctypes.Structure):
    """The residual connection around a sublayer."""

    _fields_ = (("order", INT), ("norm", Norm), ("output_norm", Norm))


class AttentionLayer(ctypes.Structure):
    """An attention layer: projections, sizes, residual connection."""

    _fields_ = (
        *fields(PackedMatrix, "project", "output"),
        *fields(LONG, "heads", "key_value_heads", "head_dim"),
        ("scale", FLOAT),
        ("bf16", INT),
        ("residual", Residual),
    )


class Feedforward(ctypes.Structure):
    """A feed-forward layer."""

    _fields_ = (*fields(INT, "gated", "activation"), *fields(PackedMatrix, "up", "down"), ("residual", Residual))


class Block(ctypes.Structure):
    """A transformer block."""

    _fields_ = (
        ("model_dim", LONG),
        *fields(AttentionLayer, "self_attention", "cross_attention"),
        ("feedforward", Feedforward),
    )


class KVCacheView(ctypes.Structure):
    """The KV cache of one layer: addresses and strides. It owns nothing."""

    _fields_ = (
        *fields(POINTER, "key", "value"),
        ("bf16", INT),
        *fields(LONG, "heads", "batch_stride", "head_stride", "key_stride"),
    )


class Batch(ctypes.Structure):
    """A packed batch, with its caches."""

    _fields_ = (
        *fields(LONG, "tokens", "sequences"),
        *fields(POINTER, "lengths", "offsets"),
        ("causal", INT),
        *fields(POINTER, "cosine", "sine", "bias"),
        *fields(LONG, "bias_batch_stride", "bias_head_stride", "bias_query_stride"),
        *fields(POINTER, "past_lengths", "key_lengths"),
        ("source_sequences", LONG),
        *fields(POINTER, "source_lengths", "cross_query_lengths", "cross_query_offsets"),
        *fields(LONG, "first_token", "first_sequence", "first_source"),
        *fields(KVCacheView, "self_cache", "cross_cache"),
    )


class DropoutRng(ctypes.Structure):
    """The random state of dropout: a seed, how many of 65,536 values are dropped, the scale of the others, and the keys
    of the rows (None: the numbers depend on the seed alone)."""

    _fields_ = (
        *fields(ctypes.c_uint32, "seed_low", "seed_high"),
        ("drop_threshold", INT),
        ("scale", FLOAT),
        ("row_keys", POINTER),
    )
    keys: Tensor | None = None
    """The tensor that `row_keys` points to."""

    @property
    def rows(self) -> int:
        """The number of rows; 1 without keys, where rows do not matter."""
        return 1 if self.keys is None else len(self.keys)


class TrainingAttentionArguments(ctypes.Structure):
    """The arguments of attention for training, forward and backward."""

    _fields_ = (
        *fields(LONG, "sequences", "heads", "head_dim"),
        ("scale", FLOAT),
        ("causal", INT),
        *fields(POINTER, "query", "key", "value"),
        *fields(LONG, "query_stride", "key_stride", "value_stride"),
        *fields(POINTER, "query_lengths", "query_offsets", "key_lengths", "key_offsets"),
        ("rng", DropoutRng),
        ("max_key_length", LONG),
        *fields(POINTER, "output", "query_gradient", "key_gradient", "value_gradient"),
    )


class RowLengths:
    """The lengths of the sequences of a packed batch and their offsets, as C arrays."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths, self._offsets = array("l", lengths), array("l", accumulate(lengths, initial=0))
        self.count, self.address = len(lengths), self._lengths.buffer_info()[0]
        self.offsets_address = self._offsets.buffer_info()[0]
        """The address of the offsets."""

    @property
    def max_length(self) -> int:
        """The length of the longest sequence."""
        return max(self._lengths)


@lru_cache(maxsize=256)
def row_lengths(lengths: tuple[int, ...]) -> RowLengths:
    """Return lengths as C arrays, cached because all blocks use the same ones.

    The caller keeps a reference while C uses the addresses.
    """
    return RowLengths(lengths)
