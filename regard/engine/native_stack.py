"""A stack of blocks in one native call."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.hooks import HookDetector
from regard.engine.kv_cache import NativeCache
from regard.engine.modules_native import NativeNorm, norm_struct
from regard.engine.native_attention import SUPPORTED_MASKS
from regard.engine.native_block import BatchDescriptor, CacheDescriptor, NativeBlock, run_blocks
from regard.transformer.attention import AttentionContext, EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache, Memory
from regard.transformer.mask import Everything, Mask
from regard.transformer.stack import Stack


class NativeStack(Stack):
    """The same stack with the same submodules, in one native call. It calls its blocks one by one if the native call
    does not support the arguments, or if a submodule has a forward hook."""

    def __init__(self, original: Stack, blocks: list[NativeBlock]) -> None:
        self.__dict__.update(original.__dict__)  # shares the original's submodules
        self.layers = [blocks[index] for index in self.block_indices]
        self.has_cross_attention = any(block.cross_attention is not None for block in blocks)
        self.final_norm_struct = norm_struct(original.final_norm)
        self.forward_hooks = HookDetector(module for module in original.modules() if module is not original)

    def forward(
        self,
        x: Float[Tensor, "tokens model"],
        layout: BatchLayout,
        mask: Mask | None = None,
        encoder_output: EncoderOutput | None = None,
        cache: Cache | Memory | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Run all blocks on a packed batch."""
        context = self.native_context(layout, mask, encoder_output, cache)
        if context is None:
            return super().forward(x, layout, mask, encoder_output, cache)
        assert isinstance(cache, NativeCache | None)
        caches = self._extend_cache(layout, encoder_output, cache)
        return run_blocks(self.layers, x, context, encoder_output, caches, self.final_norm_struct)

    def native_context(
        self, layout: BatchLayout, mask: Mask | None, encoder_output: EncoderOutput | None, cache: Cache | Memory | None
    ) -> AttentionContext | None:
        """Return the attention context, or None if the arguments are not supported or a submodule has a hook."""
        has_source = not self.has_cross_attention or (encoder_output is not None and cache is not None)
        if not has_source or not isinstance(cache, NativeCache | None) or self.forward_hooks:
            return None
        context = self.attention_context(layout, mask, torch.float32, cached=cache is not None)
        return context if type(context.mask) in SUPPORTED_MASKS else None

    def describe_batch(
        self, context: AttentionContext, encoder_output: EncoderOutput | None, cache: NativeCache
    ) -> BatchDescriptor:
        """Reserve capacity in the cache and return the arguments of the native call."""
        caches = self._extend_cache(context.layout, encoder_output, cache)
        return BatchDescriptor(self.layers, context, encoder_output, caches, self.final_norm_struct)

    def new_cache(self) -> NativeCache:
        """Return an empty cache."""
        return NativeCache(len(self.block_indices))

    def _extend_cache(
        self, layout: BatchLayout, encoder_output: EncoderOutput | None, cache: NativeCache | None
    ) -> CacheDescriptor:
        """Reserve capacity for the batch in the caches of all blocks, and describe them."""
        if cache is None:
            return CacheDescriptor()
        past_lengths = cache.reserve(layout, [block.key_template for block in self.layers])
        caches = CacheDescriptor(cache.layer_views, past_lengths, cache.layers[0].lengths)
        if encoder_output is not None and self.has_cross_attention:
            for block, cross_cache in zip(self.layers, cache.cross_layers, strict=True):
                block.fill_cross_cache(encoder_output, cross_cache)
            caches.cross_layer_views = cache.cross_layer_views
            caches.source_lengths = next(layer.lengths for layer in cache.cross_layers if not layer.empty)
        return caches


def try_native_stack(stack: Stack) -> NativeStack | None:
    """Return the stack as one native call, or None unless all its blocks are native and have no mask of their own."""
    blocks = [block for block in stack.blocks if isinstance(block, NativeBlock)]
    supported = all(isinstance(block.mask, Everything) for block in blocks) and len(blocks) == len(stack.blocks)
    return NativeStack(stack, blocks) if supported and isinstance(stack.final_norm, NativeNorm | None) else None
