"""Blocks in a row: an encoder or a decoder, which differ in their mask and in what they attend to."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.transformer import config, normalization
from regard.transformer.attention import Looking, Source
from regard.transformer.batch_layout import Rows
from regard.transformer.block import Block
from regard.transformer.cache import Cache, Memory
from regard.transformer.config import Begin
from regard.transformer.mask import Everything, Mask
from regard.transformer.position import ALiBi, RelativeBuckets, RelativeWaves, Rotary, Rotation, Shared, Waves


class Stack(nn.Module):
    """The blocks, the positions that they share, and the norm after the last of them."""

    def __init__(self, design: config.Stack, model_dim: int) -> None:
        super().__init__()
        kinds = design.blocks
        self.mask = design.mask
        self.position = _position(design, model_dim)
        self.memory = design.memory
        self.order = _order(design)
        """Which of the blocks each layer is."""
        distinct = max(self.order) + 1
        self.blocks = nn.ModuleList(Block(kinds[i % len(kinds)], model_dim) for i in range(distinct))
        self.final_norm = normalization.build(design.final_norm, model_dim) if design.final_norm else None
        self.final_dropout = nn.Dropout(design.final_dropout)
        self.layer_dropout = design.layer_dropout
        self.recompute = False
        """Gradient checkpointing: keep only what enters each block, and compute the rest again on the way back."""

    def forward(
        self,
        x: Float[Tensor, "tokens model"],
        rows: Rows,
        mask: Mask | None = None,
        source: Source | None = None,
        cache: Cache | Memory | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Pass the tokens of a batch through all blocks. `mask` narrows (& …) the stack's own."""
        looking = self.looking(rows, mask, x.dtype, kept=isinstance(cache, Cache))
        for layer, number in enumerate(self.order):
            block = self.blocks[number]
            assert isinstance(block, Block)
            if self.training and self.layer_dropout and torch.rand(()) < self.layer_dropout:
                continue
            own = looking.mask & block.mask
            look = looking if own is looking.mask else replace(looking, mask=own)
            if self.recompute and self.training and cache is None:
                x = checkpoint(block, x, look, source, use_reentrant=False)
            elif cache is None:
                x = block(x, look, source)
            elif isinstance(cache, Memory):
                x = block(x, look, source, cache.own[layer])
            else:
                x = block(x, look, source, cache.own[layer], cache.source[layer])
        if self.final_norm is not None:
            x = self.final_norm(x)
        return self.final_dropout(x)

    def looking(self, rows: Rows, mask: Mask | None, dtype: torch.dtype, kept: bool = False) -> Looking:
        """How the blocks look at a batch, worked out once for all; `kept` keys begin at the start of the row."""
        return Looking(rows, self.mask & (mask or Everything()), self._positions(rows, dtype, kept))

    def new_cache(self) -> Cache:
        """An empty cache."""
        return Cache(len(self.order))

    def new_memory(self) -> Memory | None:
        """An empty memory, where the stack has one."""
        return Memory(len(self.order), self.memory.length) if self.memory else None

    def begin(self, memory: Memory | None, batch: int, like: Tensor) -> Memory | None:
        """The memory before the first segment: of some networks it is not empty, even if nobody asks for it."""
        if self.memory is None or self.memory.begin is Begin.EMPTY:
            return memory
        memory = memory or self.new_memory()
        assert memory is not None
        if not memory.lengths:
            memory.fill(batch, like)
        return memory

    def _positions(self, rows: Rows, dtype: torch.dtype, kept: bool) -> Rotation | Waves | Tensor | None:
        """What the positions give: angles, waves, or what is added to the scores."""
        if self.position is None:
            return None
        if isinstance(self.position, Rotary | RelativeWaves):
            return self.position(rows, dtype)
        query = torch.arange(rows.longest, device=rows.device)[None]
        if not kept:
            return self.position(query, query).to(dtype)  # only distances matter: all rows may start at 0
        key = torch.arange(rows.end, device=rows.device)[None]
        query = query + (rows.begin if rows.aligned else torch.tensor(rows.starts, device=rows.device)[:, None])
        return self.position(query, key).to(dtype)


def _order(design: config.Stack) -> list[int]:
    """The number of the block that each layer uses."""
    match design.sharing:
        case config.Apart():
            return list(range(design.layers))
        case config.Groups(groups=groups, inner=inner):
            turns = design.layers // inner
            return [turn * groups // turns * inner + block for turn in range(turns) for block in range(inner)]


def _position(design: config.Stack, model_dim: int) -> Shared | None:
    attention = design.blocks[0].attention
    match design.position:
        case None:
            return None
        case config.Rotary() as rotary:
            return Rotary(rotary, attention.head_dim)
        case config.RelativeBuckets() as buckets:
            return RelativeBuckets(buckets, attention.heads, both_ways=isinstance(design.mask, Everything))
        case config.RelativeWaves() as waves:
            return RelativeWaves(waves, model_dim, both_ways=isinstance(design.mask, Everything))
        case config.ALiBi():
            return ALiBi(attention.heads)
