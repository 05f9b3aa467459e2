"""The native kernels for inference, as functions of tensors. The tests compare each with its definition in torch.

Tensors are on the CPU; other dtypes are converted to float32 first. Results are new float32 tensors, regardless of
torch's default dtype and device.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor

from regard.native.arena import PAGE_BYTES, allocate
from regard.native.ctypes_structs import (
    AttentionArguments,
    Embedding,
    KVCacheView,
    Norm,
    PackedMatrix,
    RowLengths,
    pointer,
    row_lengths,
)
from regard.native.library import library
from regard.transformer.config import Activation

ACTIVATION_CODES = {
    None: 0,
    Activation.RELU: 1,
    Activation.GELU: 2,
    Activation.GELU_TANH: 3,
    Activation.SILU: 4,
    Activation.TANH: 5,
    Activation.QUICK_GELU: 6,
}
"""The values of the enumeration in `c/activation.h`."""

Vectors = Float[Tensor, "rows dim"]
BlockMaxima = Float[Tensor, "rows blocks"]
"""The largest logit of each block of a row; C decides the size of the blocks."""
KVCacheViews = KVCacheView | ctypes.Array[KVCacheView]
"""The KV cache of one layer, or of several."""


def empty_float32(*shape: int) -> Tensor:
    """Return an uninitialized float32 tensor."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def contiguous_float32(x: Tensor) -> Tensor:
    """Return the tensor as float32 and contiguous."""
    return (x if x.dtype is torch.float32 else x.to(torch.float32)).contiguous()


def _contiguous_rows(x: Vectors) -> Vectors:
    """Return the matrix as float32 with contiguous rows; the row stride is arbitrary."""
    x = x if x.dtype is torch.float32 else x.to(torch.float32)
    return x if x.stride(1) == 1 else x.contiguous()


def pack_f32(weight: Float[Tensor, "output input"]) -> Float[Tensor, " packed"]:
    """Pack a weight in panels."""
    weight = _contiguous_rows(weight)
    outputs, inputs = weight.shape
    packed = allocate(library().packed_f32_size(outputs, inputs), torch.float32)
    library().pack_f32(outputs, inputs, weight.data_ptr(), weight.stride(0), packed.data_ptr())
    return packed


def pack_int8(qweight: Int8[Tensor, "output input"]) -> Int8[Tensor, " packed"]:
    """Pack an int8 weight in panels."""
    qweight = qweight.contiguous()
    outputs, inputs = qweight.shape
    packed = allocate(library().packed_int8_size(outputs, inputs), torch.int8)
    library().pack_int8(outputs, inputs, qweight.data_ptr(), packed.data_ptr())
    return packed


def packed_linear(x: Vectors, matrix: PackedMatrix) -> Float[Tensor, "rows output"]:
    """Return activation(x·weightᵀ + bias). With an int8 weight, each row of x is quantized to int8 first."""
    x = _contiguous_rows(x)
    rows = x.shape[0]
    output = empty_float32(rows, matrix.outputs)
    library().packed_linear(ctypes.addressof(matrix), rows, x.data_ptr(), x.stride(0), output.data_ptr())
    return output


def add_norm(x: Vectors, sublayer_output: Vectors | None, norm: Norm) -> Vectors:
    """Return norm(x + sublayer_output)."""
    x, sublayer_output = contiguous_float32(x), None if sublayer_output is None else contiguous_float32(sublayer_output)
    output = empty_float32(*x.shape)
    library().add_norm(*x.shape, x.data_ptr(), pointer(sublayer_output), ctypes.addressof(norm), output.data_ptr())
    return output


def gated_activation(x: Float[Tensor, "rows twice"], activation: int) -> Vectors:
    """Return activation(gate) · up. Each row of x holds gate, then up."""
    x = contiguous_float32(x)
    output = empty_float32(x.shape[0], x.shape[1] // 2)
    library().gated_activation(*output.shape, x.data_ptr(), activation, output.data_ptr())
    return output


def embedding_struct(
    table: Float[Tensor, "vocabulary dim"] | Int8[Tensor, "vocabulary dim"],
    row_scales: Float[Tensor, " vocabulary"] | None,
    scale: float,
    norm: Norm | None = None,
) -> Embedding:
    """Return the C struct of an embedding. The table is float32, or int8 with `row_scales`, and contiguous.

    The caller keeps references to the arguments.
    """
    vocabulary, dim = table.shape
    norm_address = None if norm is None else ctypes.addressof(norm)
    return Embedding(dim, vocabulary, table.data_ptr(), pointer(row_scales), scale, norm_address)


def embed(
    embedding: Embedding,
    tokens: Int[Tensor, " tokens"],
    position_table: Float[Tensor, "positions dim"] | None,
    position_ids: Int[Tensor, " tokens"],
) -> Float[Tensor, "tokens dim"]:
    """Return norm(table[tokens] · scale + position_table[position_ids]). Position ids are not checked."""
    tokens, position_ids = (ids if ids.dtype is torch.long else ids.long() for ids in (tokens, position_ids))
    tokens, position_ids = tokens.contiguous(), position_ids.contiguous()
    output = empty_float32(len(tokens), embedding.dim)
    pointers = tokens.data_ptr(), pointer(position_table), position_ids.data_ptr(), output.data_ptr()
    check_tokens(tokens, library().embed(ctypes.addressof(embedding), len(tokens), *pointers), embedding)
    return output


def check_tokens(tokens: Int[Tensor, " tokens"], valid_count: int, embedding: Embedding) -> None:
    """Raise an error if a token id is out of range. `valid_count` tokens come before the first such token."""
    if valid_count < len(tokens):
        token = int(tokens[valid_count])
        raise IndexError(f"token id {token} is out of range for a vocabulary of {embedding.vocabulary}")


def attend(
    query: Float[Tensor, "tokens heads dim"],
    key: Float[Tensor, "key_tokens key_heads dim"] | Float[Tensor, "rows key_heads capacity dim"],
    value: Float[Tensor, "key_tokens key_heads dim"] | Float[Tensor, "rows key_heads capacity dim"],
    query_lengths: RowLengths,
    key_lengths: RowLengths,
    scale: float,
    causal: bool,
    bias: Float[Tensor, "#batch heads query key"] | None = None,
) -> Float[Tensor, "tokens all"]:
    """Return softmax(Q·Kᵀ·scale + bias)·V for a packed batch of queries.

    Keys and values are packed too, or are in a KV cache with one row for each sequence. Every query attends to all keys
    of its sequence; if `causal`, only the last one does, and each other query attends to one key less than the next.
    The bias is as large as the longest sequence needs; shorter ones use its upper left corner.
    """
    tokens, heads, dim = query.shape
    query = query.to(torch.float32)
    bf16 = key.dtype == value.dtype == torch.bfloat16
    key, value = (key, value) if bf16 else (x.to(torch.float32) for x in (key, value))
    bias = None if bias is None else bias.to(torch.float32)
    if query.stride(2) != 1 or query.stride(1) != dim:
        query = query.contiguous()
    if key.stride() != value.stride() or key.stride(-1) != 1:
        key, value = key.contiguous(), value.contiguous()
    if bias is not None and bias.stride(-1) != 1:
        bias = bias.contiguous()
    output = empty_float32(tokens, heads * dim)
    cached = key.dim() == 4
    batch_stride, head_stride, key_stride = key.stride()[:3] if cached else (0, key.stride(1), key.stride(0))
    arguments = AttentionArguments(
        query_lengths.count, heads, heads // key.shape[1], dim, scale, causal,
        query.data_ptr(), query.stride(0), query_lengths.address, query_lengths.offsets_address,
        key.data_ptr(), value.data_ptr(), bf16, None if cached else key_lengths.offsets_address,
        batch_stride, head_stride, key_stride, key_lengths.address,
        pointer(bias), *bias_strides(bias), output.data_ptr(),
    )  # fmt: skip
    library().attend(ctypes.addressof(arguments))
    return output


def bias_strides(bias: Float[Tensor, "#batch heads query key"] | None) -> tuple[int, int, int]:
    """Return the batch, head and query strides of a bias; the batch stride is 0 if all sequences share the bias."""
    if bias is None:
        return 0, 0, 0
    batch, head, query, _ = bias.stride()
    return batch if len(bias) > 1 else 0, head, query


def append_to_cache(
    cache: Float[Tensor, "rows heads capacity dim"],
    new: Float[Tensor, "tokens heads dim"],
    new_lengths: RowLengths,
    past_lengths: RowLengths,
) -> None:
    """Append new keys or values to the rows of a cache tensor, which is float32 or bfloat16."""
    assert cache.dtype in (torch.float32, torch.bfloat16)
    new = new.to(cache.dtype).to(torch.float32)
    if new.stride(2) != 1 or new.stride(1) != new.shape[2]:
        new = new.contiguous()
    library().append_to_cache(
        new_lengths.count, new.shape[1], new.shape[2], new_lengths.address, past_lengths.address,
        new.data_ptr(), new.stride(0), cache.data_ptr(),
        cache.stride(0), cache.stride(1), cache.dtype == torch.bfloat16,
    )  # fmt: skip


def copy_cache_rows(
    layers: int,
    source: KVCacheViews,
    target: KVCacheViews,
    source_rows: Sequence[int],
    target_rows: Sequence[int],
    lengths: tuple[int, ...],
) -> None:
    """Copy rows of all layers from one cache to another, or within one if no target row is also a source row.

    `lengths` are those of all target rows after the copy.
    """
    if min(source_rows, default=0) < 0:
        raise IndexError(f"row index must not be negative, found {min(source_rows)}")
    target_lengths = row_lengths(lengths)
    arrays = [array("l", values) for values in (source_rows, target_rows)]
    sources, targets = (values.buffer_info()[0] for values in arrays)
    views = (ctypes.addressof(view) for view in (source, target))
    library().copy_cache_rows(layers, *views, len(source_rows), sources, targets, target_lengths.address)


def release_cache_rows(layers: int, cache: KVCacheViews, slots: Sequence[int]) -> None:
    """Release the memory of cache rows that are no longer used."""
    if not slots:
        return
    indices = array("l", slots)
    library().release_cache_rows(layers, ctypes.addressof(cache), len(slots), indices.buffer_info()[0], PAGE_BYTES)


def empty_block_maxima(rows: int, size: int) -> BlockMaxima:
    """Return an uninitialized tensor for the block maxima of `rows` rows of `size` logits."""
    return empty_float32(rows, _block_count(size))


@cache
def _block_count(size: int) -> int:
    count: int = library().block_count(size)
    return count


def logsumexp(
    logits: Float[Tensor, "rows size"], block_maxima: BlockMaxima | None = None
) -> tuple[Float[Tensor, "rows 1"], bool]:
    """Return logsumexp of each row, and whether all of them are finite. If so, `block_maxima` is filled."""
    logits = contiguous_float32(logits)
    output = empty_float32(logits.shape[0], 1)
    finite_rows = library().logsumexp(*logits.shape, logits.data_ptr(), output.data_ptr(), pointer(block_maxima))
    return output, finite_rows == logits.shape[0]


def topk(
    scores: Float[Tensor, "rows size"], k: int, block_maxima: BlockMaxima | None = None
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """Return the k largest scores of each row in descending order, and their indices. Ties go to the lower index.

    With `block_maxima`, which no score of a block exceeds, most blocks are skipped.
    """
    scores = contiguous_float32(scores)
    rows, size = scores.shape
    k = min(k, size)
    values, indices = empty_float32(rows, k), torch.empty(rows, k, dtype=torch.long, device="cpu")
    library().topk(rows, size, scores.data_ptr(), pointer(block_maxima), k, values.data_ptr(), indices.data_ptr())
    return values, indices


def beam_topk(
    processed_logits: Float[Tensor, "rows size"],
    normalizer: Float[Tensor, "rows 1"] | None,
    beam_scores: Sequence[float],
    logits: Float[Tensor, "rows size"],
    lse: Float[Tensor, "rows 1"],
    batch_size: int,
    k: int,
    block_maxima: BlockMaxima | None = None,
) -> tuple[Sequence[float], Sequence[int], Sequence[int], Sequence[float]]:
    """Return the k best candidates over all beams of each input, best first.

    The score of a candidate is processed_logits - normalizer + beam_scores. Returns four flat sequences with k entries
    for each input: the scores, the beams (indices among those of the input), the tokens, and the
    log-probabilities logits - lse of the tokens. If `block_maxima` is given, no processed logit of a block is larger
    than its maximum. All inputs have the same number of beams.
    """
    rows, size = processed_logits.shape
    k = min(k, rows // batch_size * size)
    totals, log_probs = (array("f", bytes(batch_size * k * 4)) for _ in range(2))
    parents, tokens = (array("l", bytes(batch_size * k * 8)) for _ in range(2))
    tensors, prefix_scores = (processed_logits, normalizer, logits, lse), array("f", beam_scores)
    inputs = [None if x is None else contiguous_float32(x) for x in tensors]  # referenced while C uses the addresses
    processed_address, normalizer_address, logits_address, lse_address = map(pointer, inputs)
    arguments = (
        processed_address, normalizer_address, prefix_scores.buffer_info()[0], logits_address, lse_address,
        pointer(block_maxima),
    )  # fmt: skip
    outputs = (values.buffer_info()[0] for values in (totals, parents, tokens, log_probs))
    library().beam_topk(batch_size, rows // batch_size, size, *arguments, k, *outputs)
    return totals, parents, tokens, log_probs
