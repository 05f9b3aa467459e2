"""Transformer blocks in one native call. For small matrices, a call from Python takes as long as the GEMM itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.engine.hooks import HookDetector
from regard.engine.kv_cache import CacheTable, cache_struct
from regard.engine.modules_native import NativeDense, NativeGated, NativeResidual, PackedLinear
from regard.engine.modules_torch import CrossProjection, SelfProjection
from regard.engine.native_attention import SUPPORTED_MASKS, NativeAttention
from regard.native import ctypes_structs
from regard.native.ctypes_structs import row_lengths
from regard.native.library import library
from regard.native.ops import bias_strides, contiguous_float32
from regard.transformer.attention import AttentionContext, EncoderOutput
from regard.transformer.block import Block
from regard.transformer.cache import LayerKVCache, SegmentMemory
from regard.transformer.config import NormOrder
from regard.transformer.mask import Causal
from regard.transformer.position import Rotation

ModuleT = TypeVar("ModuleT", bound=nn.Module)
NORM_ORDER_CODES = {NormOrder.POST: 0, NormOrder.PRE: 1, NormOrder.BOTH: 2}
"""The values of `enum NormOrder` in `c/block.c`."""


class NativeBlock(Block):
    """The same block with the same submodules, in one native call. It calls its submodules one by one if the native
    call does not support the arguments, or if one of them has a forward hook."""

    def __init__(self, original: Block) -> None:
        self.__dict__.update(original.__dict__)  # shares the original's submodules
        self.struct = _block_struct(original)
        layer, attention = self.struct.self_attention, _expect(NativeAttention, original.attention)
        self.key_template = torch.empty(
            0, layer.key_value_heads, layer.head_dim, dtype=attention.kv_dtype, device="cpu"
        )
        """An empty tensor with the shape and dtype of its keys."""
        self.struct_address = ctypes.addressof(self.struct)
        self.forward_hooks = HookDetector(module for module in original.modules() if module is not original)

    def forward(
        self,
        x: Tensor,
        context: AttentionContext,
        encoder_output: EncoderOutput | None = None,
        cache: LayerKVCache | SegmentMemory | None = None,
        cross_cache: LayerKVCache | None = None,
    ) -> Tensor:
        """Run the block on a packed batch."""
        if not self.supports(context, encoder_output, cache, cross_cache):
            return super().forward(x, context, encoder_output, cache, cross_cache)
        assert not isinstance(cache, SegmentMemory)
        caches = CacheDescriptor()
        if cache is not None:
            caches.past_lengths = cache.reserve(context.layout, self.key_template)
            caches.layer_views, caches.key_lengths = _cache_table(cache), cache.lengths
        if cross_cache is not None and encoder_output is not None and self.cross_attention is not None:
            self.fill_cross_cache(encoder_output, cross_cache)
            caches.cross_layer_views, caches.source_lengths = _cache_table(cross_cache), cross_cache.lengths
        return run_blocks([self], x, context, encoder_output, caches)

    def fill_cross_cache(self, encoder_output: EncoderOutput, cache: LayerKVCache) -> None:
        """Compute the keys and values of the encoder output, unless the cache already has them."""
        if cache.empty and self.cross_attention is not None:
            cache.append(
                *self.cross_attention.project.key_value_heads(encoder_output.hidden_states), encoder_output.layout
            )

    def supports(
        self,
        context: AttentionContext,
        encoder_output: EncoderOutput | None,
        cache: LayerKVCache | SegmentMemory | None,
        cross_cache: LayerKVCache | None,
    ) -> bool:
        """Return whether the native call supports these arguments and no submodule has a hook."""
        if self.forward_hooks or type(context.mask) not in SUPPORTED_MASKS or isinstance(cache, SegmentMemory):
            return False
        return self.cross_attention is None or (encoder_output is not None and cross_cache is not None)


@dataclass
class CacheDescriptor:
    """The caches of several blocks and the lengths of their rows, which are the same in all blocks."""

    layer_views: CacheTable | None = None
    """The self-attention cache of each block."""
    past_lengths: tuple[int, ...] = ()
    """The number of cached positions of each sequence before the new tokens."""
    key_lengths: tuple[int, ...] = ()
    """The same with the new tokens."""
    cross_layer_views: CacheTable | None = None
    """The cross-attention cache of each block."""
    source_lengths: tuple[int, ...] = ()
    """The length of each source sequence."""


def run_blocks(
    blocks: Sequence[NativeBlock],
    x: Tensor,
    context: AttentionContext,
    encoder_output: EncoderOutput | None,
    caches: CacheDescriptor,
    final_norm: ctypes_structs.Norm | None = None,
) -> Tensor:
    """Run blocks and the final norm on a packed batch. All blocks have to support the arguments."""
    inputs = contiguous_float32(x)
    output = torch.empty_like(inputs)
    descriptor = BatchDescriptor(blocks, context, encoder_output, caches, final_norm)
    library().run_stack(*descriptor.arguments, inputs.data_ptr(), output.data_ptr())
    return output


class BatchDescriptor:
    """The arguments of a native call that runs blocks on a batch. Keep a reference while C uses the addresses."""

    def __init__(
        self,
        blocks: Sequence[NativeBlock],
        context: AttentionContext,
        encoder_output: EncoderOutput | None,
        caches: CacheDescriptor,
        final_norm: ctypes_structs.Norm | None,
    ) -> None:
        batch, no_views = _batch_struct(context, encoder_output), (ctypes_structs.KVCacheView * len(blocks))()
        lengths = [row_lengths(values) for values in (caches.past_lengths, caches.key_lengths, caches.source_lengths)]
        batch.past_lengths, batch.key_lengths, batch.source_lengths = (
            values.address if values.count else None for values in lengths
        )
        pointers = (ctypes_structs.POINTER * len(blocks))(*(block.struct_address for block in blocks))
        structs = (pointers, batch, caches.layer_views or no_views, caches.cross_layer_views or no_views)
        norm_address = None if final_norm is None else ctypes.addressof(final_norm)
        self.arguments = (len(blocks), *map(ctypes.addressof, structs), norm_address)
        self.keep_alive = structs, lengths, context


def _cache_table(cache: LayerKVCache) -> CacheTable:
    """Return the C array for the cache of a single block."""
    assert cache.key is not None
    assert cache.value is not None
    return (ctypes_structs.KVCacheView * 1)(cache_struct(cache.key, cache.value))


def try_native_block(block: Block) -> NativeBlock | None:
    """Return the block as one native call, or None if one of its submodules is not supported."""
    attentions = [block.attention] if block.cross_attention is None else [block.attention, block.cross_attention]
    feedforward = block.get_submodule("feedforward")  # replaced: no longer of the annotated type
    supported = all(isinstance(attention, NativeAttention) for attention in attentions)
    supported = supported and isinstance(block.attention.get_submodule("project"), SelfProjection)
    return NativeBlock(block) if supported and isinstance(feedforward, NativeDense | NativeGated) else None


def _block_struct(block: Block) -> ctypes_structs.Block:
    cross_attention = ctypes_structs.AttentionLayer()
    if block.cross_attention is not None and block.cross_attention_residual is not None:
        cross_project = _expect(CrossProjection, block.cross_attention.get_submodule("project"))
        cross_attention = _attention_struct(
            block.cross_attention, cross_project, cross_project.query, block.cross_attention_residual
        )
    project = _expect(SelfProjection, block.attention.get_submodule("project"))
    self_attention = _attention_struct(block.attention, project, project.linear, block.attention_residual)
    return ctypes_structs.Block(
        self_attention.project.inputs, self_attention, cross_attention, _feedforward_struct(block)
    )


def _feedforward_struct(block: Block) -> ctypes_structs.Feedforward:
    feedforward, residual = block.get_submodule("feedforward"), _residual_struct(block.feedforward_residual)
    if isinstance(feedforward, NativeDense):
        return ctypes_structs.Feedforward(False, 0, feedforward.up.struct, feedforward.down.struct, residual)
    gated = _expect(NativeGated, feedforward)
    return ctypes_structs.Feedforward(True, gated.activation, gated.gate_up.struct, gated.down.struct, residual)


def _attention_struct(
    attention: nn.Module, project: SelfProjection | CrossProjection, query: nn.Module, residual: nn.Module
) -> ctypes_structs.AttentionLayer:
    native = _expect(NativeAttention, attention)
    return ctypes_structs.AttentionLayer(
        _expect(PackedLinear, query).struct,
        _expect(PackedLinear, native.get_submodule("output")).struct,
        project.head_counts[0],
        project.head_counts[1],
        project.head_dim,
        native.kernel.scale,
        native.kv_dtype == torch.bfloat16,
        _residual_struct(residual),
    )


def _residual_struct(module: nn.Module) -> ctypes_structs.Residual:
    residual = _expect(NativeResidual, module)
    output_norm = ctypes_structs.Norm() if residual.output_norm is None else residual.output_norm.struct
    return ctypes_structs.Residual(NORM_ORDER_CODES[residual.order], residual.norm.struct, output_norm)


def _expect(cls: type[ModuleT], module: nn.Module) -> ModuleT:
    assert isinstance(module, cls)
    return module


def _batch_struct(context: AttentionContext, encoder_output: EncoderOutput | None) -> ctypes_structs.Batch:
    """Return the C struct of a batch, computed once for all blocks."""
    key = ("batch", id(context.mask))
    if key not in context.memo:
        lengths = row_lengths(context.layout.lengths)
        struct = ctypes_structs.Batch(
            context.layout.num_tokens, lengths.count, lengths.address, lengths.offsets_address
        )
        struct.causal = isinstance(context.mask, Causal)
        tensors: tuple[Tensor, ...] = ()
        if isinstance(context.position, Rotation):
            tensors = contiguous_float32(context.position.cosine), contiguous_float32(context.position.sine)
            struct.cosine, struct.sine = (x.data_ptr() for x in tensors)
        elif isinstance(context.position, Tensor):
            tensors = (contiguous_float32(context.position),)
            struct.bias = tensors[0].data_ptr()
            struct.bias_batch_stride, struct.bias_head_stride, struct.bias_query_stride = bias_strides(tensors[0])
        queries = row_lengths(() if encoder_output is None else encoder_output.query_layout(context.layout).lengths)
        if encoder_output is not None:
            struct.source_sequences = queries.count
            struct.cross_query_lengths, struct.cross_query_offsets = queries.address, queries.offsets_address
        # References keep the addresses valid, and the id of the mask unique.
        context.memo[key] = context.mask, struct, tensors, lengths, queries
    batch: ctypes_structs.Batch = context.memo[key][1]
    return batch
