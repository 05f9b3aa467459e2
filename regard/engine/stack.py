"""A stack whose blocks are computed in one call."""

from __future__ import annotations

from itertools import repeat

from jaxtyping import Float
from torch import Tensor

from regard.engine.block import CompiledBlock, run
from regard.native.kernels import move
from regard.native.structures import lengths_of
from regard.transformer.attention import Source
from regard.transformer.cache import Cache, Kept, Memory, Moves
from regard.transformer.mask import Everything, Mask
from regard.transformer.rows import Rows
from regard.transformer.stack import Stack


class CompiledKept(Kept):
    """The same keys and values. Rows change places by the compiled parts, each as far as it is filled."""

    def reorder(self, moves: Moves) -> None:
        """Keep some rows, in some order."""
        if moves.to is None:
            super().reorder(moves)
            return
        assert self.key is not None
        assert self.value is not None
        self.lengths = moves.lengths(self.lengths)
        for kept in (self.key, self.value):
            move(kept, moves.rows, moves.to, lengths_of(moves.known, self.lengths))


class CompiledStack(Stack):
    """The same stack, made of the same parts. Its blocks are called one by one where one of them has a mask of its own,
    does not know what is asked, or is listened to."""

    def __init__(self, plain: Stack, blocks: list[CompiledBlock]) -> None:
        self.__dict__.update(plain.__dict__)  # its parts are those of the plain one: none is made anew
        self.layers = [blocks[number] for number in self.order]
        self.listeners = [hooks for block in blocks for hooks in (block._forward_hooks, block._forward_pre_hooks)]

    def forward(
        self,
        x: Float[Tensor, "tokens model"],
        rows: Rows,
        mask: Mask | None = None,
        source: Source | None = None,
        cache: Cache | Memory | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Pass the tokens of a batch through all blocks."""
        if isinstance(cache, Memory) or any(self.listeners):
            return super().forward(x, rows, mask, source, cache)
        looking = self.looking(rows, mask, x.dtype, kept=cache is not None)
        if cache is not None and cache.own[0].empty:
            cache.own = [CompiledKept() for _ in cache.own]
        own, others = (repeat(None), repeat(None)) if cache is None else (cache.own, cache.source)
        kept = list(zip(self.layers, own, others, strict=False))
        if not all(layer.knows(looking, source, mine, its) for layer, mine, its in kept):
            return super().forward(x, rows, mask, source, cache)
        x = run(self.layers, x, looking, source, [mine for _, mine, _ in kept], [its for _, _, its in kept])
        return self.final_dropout(x if self.final_norm is None else self.final_norm(x))


def compiled_stack(stack: Stack) -> CompiledStack | None:
    """The stack in one call, if all its blocks are compiled and see what the stack sees."""
    blocks = [block for block in stack.blocks if isinstance(block, CompiledBlock)]
    alike = all(isinstance(block.mask, Everything) for block in blocks)
    return CompiledStack(stack, blocks) if alike and len(blocks) == len(stack.blocks) else None
