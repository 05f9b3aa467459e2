"""A stack of blocks: an encoder or a decoder. They differ in their mask and in cross-attention."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.transformer import config, normalization
from regard.transformer.attention import AttentionContext, EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.block import Block
from regard.transformer.cache import Cache, Memory
from regard.transformer.config import Begin
from regard.transformer.mask import Everything, Mask
from regard.transformer.position import (
    ALiBi,
    RelativeBuckets,
    RelativeEncoding,
    RelativeWaves,
    Rotary,
    Rotation,
    StackPosition,
)


class Stack(nn.Module):
    """The blocks, the position module that they share, and the norm after the last block."""

    def __init__(self, design: config.Stack, model_dim: int) -> None:
        super().__init__()
        blocks = design.blocks
        self.mask = design.mask
        self.position = _position(design, model_dim)
        self.memory = design.memory
        self.block_indices = _block_indices(design)
        """Index in `blocks` of the block that each layer uses."""
        distinct = max(self.block_indices) + 1
        self.blocks = nn.ModuleList(Block(blocks[i % len(blocks)], model_dim) for i in range(distinct))
        self.final_norm = normalization.build(design.final_norm, model_dim) if design.final_norm else None
        self.final_dropout = nn.Dropout(design.final_dropout)
        self.layer_dropout = design.layer_dropout
        self.gradient_checkpointing = False
        """Store only the input of each block, and recompute its activations in the backward pass."""

    def forward(
        self,
        x: Float[Tensor, "tokens model"],
        layout: BatchLayout,
        mask: Mask | None = None,
        encoder_output: EncoderOutput | None = None,
        cache: Cache | Memory | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Pass the tokens of a batch through all blocks. `mask` is combined (&) with the mask of the stack."""
        context = self.attention_context(layout, mask, x.dtype, cached=isinstance(cache, Cache))
        for layer, index in enumerate(self.block_indices):
            block = self.blocks[index]
            assert isinstance(block, Block)
            if self.training and self.layer_dropout and torch.rand(()) < self.layer_dropout:
                continue
            block_mask = context.mask & block.mask
            block_context = context if block_mask is context.mask else replace(context, mask=block_mask)
            if self.training:
                block_context = replace(block_context, layer=layer)
            if self.gradient_checkpointing and self.training and cache is None:
                x = checkpoint(block, x, block_context, encoder_output, use_reentrant=False)
            elif cache is None:
                x = block(x, block_context, encoder_output)
            elif isinstance(cache, Memory):
                x = block(x, block_context, encoder_output, cache.layers[layer])
            else:
                x = block(x, block_context, encoder_output, cache.layers[layer], cache.cross_layers[layer])
        if self.final_norm is not None:
            x = self.final_norm(x)
        return self.final_dropout(x)

    def attention_context(
        self, layout: BatchLayout, mask: Mask | None, dtype: torch.dtype, cached: bool = False
    ) -> AttentionContext:
        """Compute the inputs of attention that all blocks share. `cached`: keys start at position 0 of a sequence."""
        return AttentionContext(layout, self.mask & (mask or Everything()), self._positions(layout, dtype, cached))

    def new_cache(self) -> Cache:
        """Create an empty KV cache."""
        return Cache(len(self.block_indices))

    def new_memory(self) -> Memory | None:
        """Create an empty segment memory; None if the stack has no recurrence."""
        return Memory(len(self.block_indices), self.memory.length) if self.memory else None

    def init_memory(self, memory: Memory | None, batch: int, like: Tensor) -> Memory | None:
        """Return the memory to use before the first segment.

        Transformer-XL starts from zeros, also if the caller passed no memory. Other stacks return `memory` unchanged.
        """
        if self.memory is None or self.memory.begin is Begin.EMPTY:
            return memory
        memory = memory or self.new_memory()
        assert memory is not None
        if not memory.lengths:
            memory.fill_with_zeros(batch, like)
        return memory

    def _positions(
        self, layout: BatchLayout, dtype: torch.dtype, cached: bool
    ) -> Rotation | RelativeEncoding | Tensor | None:
        """Compute the rotation, the relative position encodings or the additive attention bias of a batch."""
        if self.position is None:
            return None
        if isinstance(self.position, Rotary | RelativeWaves):
            return self.position(layout, dtype)
        query = torch.arange(layout.longest, device=layout.device)[None]
        if not cached:
            return self.position(query, query).to(dtype)  # depends on distances only: count from 0 in every sequence
        key = torch.arange(layout.end_position, device=layout.device)[None]
        query = query + (
            layout.first_position
            if layout.aligned
            else torch.tensor(layout.start_positions, device=layout.device)[:, None]
        )
        return self.position(query, key).to(dtype)


def _block_indices(design: config.Stack) -> list[int]:
    """Return the index of the block that each layer uses."""
    match design.sharing:
        case config.Apart():
            return list(range(design.layers))
        case config.Groups(groups=groups, inner=inner):
            repeats = design.layers // inner
            return [i * groups // repeats * inner + block for i in range(repeats) for block in range(inner)]


def _position(design: config.Stack, model_dim: int) -> StackPosition | None:
    attention = design.blocks[0].attention
    match design.position:
        case None:
            return None
        case config.Rotary() as rotary:
            return Rotary(rotary, attention.head_dim)
        case config.RelativeBuckets() as buckets:
            return RelativeBuckets(buckets, attention.heads, bidirectional=isinstance(design.mask, Everything))
        case config.RelativeWaves() as sinusoids:
            return RelativeWaves(sinusoids, model_dim, bidirectional=isinstance(design.mask, Everything))
        case config.ALiBi():
            return ALiBi(attention.heads)
