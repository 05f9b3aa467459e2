"""The embedding in one native call."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.engine.hooks import HookDetector
from regard.engine.modules_native import NativeNorm, norm_struct
from regard.engine.modules_torch import QuantizedTokens
from regard.native import ctypes_structs, ops
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.embedding import Embedding, EmbeddingInput, Tokens
from regard.transformer.position import PRECOMPUTED_POSITIONS, Learned, Sinusoidal


class NativeEmbedding(Embedding):
    """The same embedding with the same submodules; tokens, scale, positions and norm are one native call."""

    def __init__(self, original: Embedding) -> None:
        self.__dict__.update(original.__dict__)  # shares the original's submodules
        self.forward_hooks = HookDetector(module for module in original.modules() if module is not original)

    def forward(
        self, tokens: EmbeddingInput, layout: BatchLayout, segments: Int[Tensor, " tokens"] | None = None
    ) -> Float[Tensor, "tokens model"]:
        """Return the embeddings of the tokens."""
        if not isinstance(tokens, Tensor) or not tokens.is_cpu or segments is not None or self.forward_hooks:
            return super().forward(tokens, layout, segments)
        struct = self.make_struct() if self.supports(layout) else None
        if struct is None:
            return super().forward(tokens, layout, segments)
        x = ops.embed(struct, tokens, self.position_table(layout), layout.positions)
        return x if self.projection is None else self.projection(x)

    def supports(self, layout: BatchLayout) -> bool:
        """Return whether the position table has all positions of the batch."""
        match self.position:
            case Learned():
                return layout.end_position <= self.position.length
            case Sinusoidal():
                return layout.end_position <= PRECOMPUTED_POSITIONS
            case None:
                return True

    def make_struct(self) -> ctypes_structs.Embedding | None:
        """Return the C struct, or None if the table's dtype or layout is not supported.

        It is made at each call, because the table may have been replaced.
        """
        tokens: nn.Module = self.tokens
        table, scale = (tokens.qweight, tokens.scale) if isinstance(tokens, QuantizedTokens) else (tokens.weight, None)
        assert isinstance(table, Tensor)
        supported = table.dtype is (torch.float32 if scale is None else torch.int8) and table.is_contiguous()
        return ops.embedding_struct(table, scale, self.scale, norm_struct(self.norm)) if supported else None

    def position_table(self, layout: BatchLayout) -> Float[Tensor, "positions dim"] | None:
        """Return the vectors that are added at each position, if there are any."""
        match self.position:
            case Sinusoidal():
                return self.position.cached_tables(layout.end_position, torch.float32, layout.device)[0]
            case Learned():
                return self.position.weight[self.position.offset :]
            case None:
                return None


def try_native_embedding(embedding: Embedding) -> NativeEmbedding | None:
    """Return the embedding as one native call, or None if it has segments or its tables are not contiguous."""
    tokens = embedding.get_submodule("tokens")
    supported = type(tokens) in (Tokens, QuantizedTokens) and embedding.segments is None
    supported = supported and isinstance(embedding.norm, NativeNorm | None)
    tables = [*tokens.parameters(), *tokens.buffers()]
    if isinstance(embedding.position, Learned):
        tables.append(embedding.position.weight)
    return NativeEmbedding(embedding) if supported and all(table.is_contiguous() for table in tables) else None
