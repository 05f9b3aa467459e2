"""Attention by the native kernels: on packed sequences, without padding, materialized masks or copies.

At INT8 the keys and values of a decoder are bfloat16, with or without a cache: reading them takes more time than
multiplying them, and the rounding error is smaller than that of the int8 weights that they are computed with.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from regard.native import ops
from regard.native.ctypes_structs import row_lengths
from regard.transformer.attention import AttentionContext, EncoderOutput, Heads, KeyHeads, MultiHeadAttention
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import LayerKVCache
from regard.transformer.mask import Causal, Everything
from regard.transformer.position import Rotation

SUPPORTED_MASKS = (Causal, Everything)
"""The masks that the native kernels support."""


class NativeAttention(MultiHeadAttention):
    """Multi-head attention by the native kernels. torch is used for what they do not support: other masks than the two
    common ones, and forward hooks on the attention kernel."""

    def __init__(self, original: MultiHeadAttention, kv_dtype: torch.dtype = torch.float32) -> None:
        nn.Module.__init__(self)  # not MultiHeadAttention's, because the submodules are those of the original
        self.project, self.kernel, self.output = original.project, original.kernel, original.output
        self.kv_dtype = kv_dtype
        """The dtype of keys and values."""

    def forward(
        self,
        hidden: Tensor,
        context: AttentionContext,
        encoder_output: EncoderOutput | None = None,
        cache: LayerKVCache | None = None,
    ) -> Tensor:
        """Attend to the sequence itself or to `encoder_output`; with `cache`, also to the cached keys and values."""
        if encoder_output is not None or cache is None:
            return super().forward(hidden, context, encoder_output, cache)
        query, key, value = self.project(hidden)
        if isinstance(context.position, Rotation):
            query, key = context.position.rotate(query), context.position.rotate(key)
        key, value = key.to(self.kv_dtype), value.to(self.kv_dtype)
        past_lengths = row_lengths(cache.reserve(context.layout, key))
        assert cache.key is not None
        assert cache.value is not None
        new_lengths = row_lengths(context.layout.lengths)
        ops.append_to_cache(cache.key, key, new_lengths, past_lengths)
        ops.append_to_cache(cache.value, value, new_lengths, past_lengths)
        return self.output(self._attend_cached(query, context, cache))

    def _attend_packed(
        self, query: Heads, key: KeyHeads, value: KeyHeads, context: AttentionContext, key_layout: BatchLayout
    ) -> Tensor:
        if isinstance(context.mask, Causal):
            key, value = key.to(self.kv_dtype), value.to(self.kv_dtype)
        if not self.supports(context):
            return super()._attend_packed(query, key.to(query.dtype), value.to(query.dtype), context, key_layout)
        return self._attend(query, key, value, context, key_layout.lengths)

    def _attend_cached(self, query: Heads, context: AttentionContext, cache: LayerKVCache) -> Tensor:
        if not self.supports(context):
            return super()._attend_cached(query, context, _cast_cache(query, cache))
        assert cache.key is not None
        assert cache.value is not None
        return self._attend(query, cache.key, cache.value, context, cache.lengths)

    def _attend(
        self, query: Heads, key: Tensor, value: Tensor, context: AttentionContext, key_lengths: tuple[int, ...]
    ) -> Tensor:
        bias = context.position if isinstance(context.position, Tensor) else None
        lengths = row_lengths(context.layout.lengths), row_lengths(key_lengths)
        causal = isinstance(context.mask, Causal)
        return ops.attend(query, key, value, *lengths, self.kernel.scale, causal, bias)

    def supports(self, context: AttentionContext) -> bool:
        """Return whether the native kernels support the mask and no hook needs the torch kernel."""
        return type(context.mask) in SUPPORTED_MASKS and not self.kernel._forward_hooks


def _cast_cache(query: Tensor, cache: LayerKVCache) -> LayerKVCache:
    """Return a copy of the cache with the dtype of the query."""
    assert cache.key is not None
    assert cache.value is not None
    result = copy.copy(cache)
    result.key, result.value = cache.key.to(query.dtype), cache.value.to(query.dtype)
    return result


def is_supported(attention: nn.Module) -> bool:
    """Return whether the native kernels support this kind of attention."""
    return type(attention) is MultiHeadAttention
