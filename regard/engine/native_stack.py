"""A stack whose blocks are computed in one call."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.hooks import Listeners
from regard.engine.kv_cache import CompiledCache
from regard.engine.modules_native import CompiledNorm, norm_of
from regard.engine.native_attention import KNOWN_MASKS
from regard.engine.native_block import CompiledBlock, Filled, Told, run
from regard.transformer.attention import Looking, Source
from regard.transformer.batch_layout import Rows
from regard.transformer.cache import Cache, Memory
from regard.transformer.mask import Everything, Mask
from regard.transformer.stack import Stack


class CompiledStack(Stack):
    """The same stack, made of the same parts. Its blocks are called one by one where one of them has a mask of its own,
    does not know what is asked, or is listened to."""

    def __init__(self, plain: Stack, blocks: list[CompiledBlock]) -> None:
        self.__dict__.update(plain.__dict__)  # its parts are those of the plain one: none is made anew
        self.layers = [blocks[number] for number in self.order]
        self.asks = any(block.cross_attention is not None for block in blocks)
        self.last = norm_of(plain.final_norm)
        self.listeners = Listeners(part for part in plain.modules() if part is not plain)

    def forward(
        self,
        x: Float[Tensor, "tokens model"],
        rows: Rows,
        mask: Mask | None = None,
        source: Source | None = None,
        cache: Cache | Memory | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Pass the tokens of a batch through all blocks."""
        looking = self.knows(rows, mask, source, cache)
        if looking is None:
            return super().forward(x, rows, mask, source, cache)
        assert isinstance(cache, CompiledCache | None)
        return run(self.layers, x, looking, source, self._filled(rows, source, cache), self.last)

    def knows(
        self, rows: Rows, mask: Mask | None, source: Source | None, cache: Cache | Memory | None
    ) -> Looking | None:
        """How the blocks look at a batch, if they know what is asked and nobody listens to a part."""
        answered = not self.asks or (source is not None and cache is not None)
        if not answered or not isinstance(cache, CompiledCache | None) or self.listeners:
            return None
        looking = self.looking(rows, mask, torch.float32, kept=cache is not None)
        return looking if type(looking.mask) in KNOWN_MASKS else None

    def told(self, looking: Looking, source: Source | None, cache: CompiledCache) -> Told:
        """What C is told of a batch, once there is room for it in the cache."""
        return Told(self.layers, looking, source, self._filled(looking.rows, source, cache), self.last)

    def new_cache(self) -> CompiledCache:
        """An empty cache."""
        return CompiledCache(len(self.order))

    def _filled(self, rows: Rows, source: Source | None, cache: CompiledCache | None) -> Filled:
        """The caches of all blocks, with room for these rows."""
        if cache is None:
            return Filled()
        filled = Filled(cache.own_at, cache.extend(rows, [block.like for block in self.layers]), cache.own[0].lengths)
        if source is not None and self.asks:
            for block, kept in zip(self.layers, cache.source, strict=True):
                block.answer(source, kept)
            filled.source = cache.source_at
            filled.source_keys = next(kept.lengths for kept in cache.source if not kept.empty)
        return filled


def compiled_stack(stack: Stack) -> CompiledStack | None:
    """The stack in one call, if all its blocks are compiled and see what the stack sees."""
    blocks = [block for block in stack.blocks if isinstance(block, CompiledBlock)]
    alike = all(isinstance(block.mask, Everything) for block in blocks) and len(blocks) == len(stack.blocks)
    return CompiledStack(stack, blocks) if alike and isinstance(stack.final_norm, CompiledNorm | None) else None
