"""An embedding in one call of the compiled parts."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.engine.hooks import Listeners
from regard.engine.modules_native import CompiledNorm, norm_of
from regard.engine.modules_torch import RoundedTokens
from regard.native import ctypes_structs, ops
from regard.transformer.batch_layout import Rows
from regard.transformer.embedding import Embedding, Given, Tokens
from regard.transformer.position import KNOWN, Learned, Sinusoidal


class CompiledEmbedding(Embedding):
    """The same embedding, made of the same parts: tokens, scale, positions and norm in one go."""

    def __init__(self, plain: Embedding) -> None:
        self.__dict__.update(plain.__dict__)  # its parts are those of the plain one: none is made anew
        self.listeners = Listeners(part for part in plain.modules() if part is not plain)

    def forward(
        self, tokens: Given, rows: Rows, segments: Int[Tensor, " tokens"] | None = None
    ) -> Float[Tensor, "tokens model"]:
        """The vectors of these tokens."""
        if not isinstance(tokens, Tensor) or not tokens.is_cpu or segments is not None or self.listeners:
            return super().forward(tokens, rows, segments)
        structure = self.structure() if self.knows(rows) else None
        if structure is None:
            return super().forward(tokens, rows, segments)
        x = ops.embed(structure, tokens, self.vectors(rows), rows.positions)
        return x if self.projection is None else self.projection(x)

    def knows(self, rows: Rows) -> bool:
        """Whether there are tables for all positions of these rows."""
        match self.position:
            case Learned():
                return rows.end <= self.position.length
            case Sinusoidal():
                return rows.end <= KNOWN
            case None:
                return True

    def structure(self) -> ctypes_structs.Embedding | None:
        """The embedding as C has it, if C knows its numbers. Made anew each time: tables may be replaced."""
        table: nn.Module = self.tokens
        levels, scale = (table.levels, table.scale) if isinstance(table, RoundedTokens) else (table.weight, None)
        assert isinstance(levels, Tensor)
        known = levels.dtype is (torch.float32 if scale is None else torch.int8) and levels.is_contiguous()
        return ops.embedding_of(levels, scale, self.scale, norm_of(self.norm)) if known else None

    def vectors(self, rows: Rows) -> Float[Tensor, "positions dim"] | None:
        """What is added at each position."""
        match self.position:
            case Sinusoidal():
                return self.position.known(rows.end, torch.float32, rows.device)[0]
            case Learned():
                return self.position.weight[self.position.offset :]
            case None:
                return None


def compiled_embedding(plain: Embedding) -> CompiledEmbedding | None:
    """The embedding in one call, if it is one of tokens and positions, whose tables stand in order."""
    table = plain.get_submodule("tokens")
    known = type(table) in (Tokens, RoundedTokens) and plain.segments is None
    known = known and isinstance(plain.norm, CompiledNorm | None)
    tables = [*table.parameters(), *table.buffers()]
    if isinstance(plain.position, Learned):
        tables.append(plain.position.weight)
    return CompiledEmbedding(plain) if known and all(one.is_contiguous() for one in tables) else None
