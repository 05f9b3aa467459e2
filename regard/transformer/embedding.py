"""From token ids, or images, to the vectors that enter the first block."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.adaptive import AdaptiveTokens
from regard.transformer.batch_layout import Rows
from regard.transformer.patches import Images, MaskedImages, Patches
from regard.transformer.position import AtEmbedding, Learned, Sinusoidal

Given = Int[Tensor, " tokens"] | Images | MaskedImages
"""What an embedding makes vectors of."""


class Tokens(nn.Module):
    """The token table: one vector for each token of the vocabulary. A head may use it again, turned round."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, dim))

    def forward(self, tokens: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        """Look the tokens up."""
        return nn.functional.embedding(tokens, self.weight)


class Embedding(nn.Module):
    """tokens · scale + segments + positions, then norm and dropout, and a projection where the sizes differ."""

    def __init__(
        self, design: config.Embedding, model_dim: int, shared: Tokens | AdaptiveTokens | Patches | None = None
    ) -> None:
        super().__init__()
        self.tokens: Tokens | AdaptiveTokens | Patches
        match design.tokens:
            case config.Tokens(vocabulary=vocabulary):
                self.tokens = Tokens(vocabulary, design.dim)
            case config.AdaptiveTokens() as steps:
                self.tokens = AdaptiveTokens(steps, design.dim)
            case config.SourceTokens():
                if not isinstance(shared, Tokens):
                    raise ValueError("SourceTokens is for the target of an encoder-decoder: write Tokens(…) here")
                self.tokens = shared
            case config.Patches() as patches:
                self.tokens = Patches(patches, design.dim)
        self.scale = design.scale
        self.segments = Tokens(design.segments, design.dim) if design.segments else None
        self.position = _position(design.position, design.dim)
        self.norm = normalization.build(design.norm, design.dim) if design.norm else None
        self.dropout = nn.Dropout(design.dropout)
        if design.projection is None and design.dim != model_dim:
            raise ValueError(f"embeddings of {design.dim} need a projection to a model_dim of {model_dim}")
        self.projection = nn.Linear(design.dim, model_dim, design.projection.bias) if design.projection else None

    def like(self, model_dim: int) -> Float[Tensor, "1 model"]:
        """A tensor of the kind that comes out, to make others like it."""
        return next(self.parameters()).new_zeros(1, model_dim)

    def forward(
        self, tokens: Given, rows: Rows, segments: Int[Tensor, " tokens"] | None = None
    ) -> Float[Tensor, "tokens model"]:
        """The vectors of these tokens or images. Segments, where the network knows them, default to the first kind."""
        x = self.tokens(tokens)
        if self.scale != 1:
            x = x * self.scale
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(rows.positions) if segments is None else segments)
        elif segments is not None:
            raise ValueError("this network knows no segments: leave `segments` out")
        if self.position is not None:
            x = x + self.position(rows, x.dtype)
        if self.norm is not None:
            x = self.norm(x)
        x = self.dropout(x)
        return x if self.projection is None else self.projection(x)


def _position(design: config.Sinusoidal | config.Learned | None, dim: int) -> AtEmbedding | None:
    match design:
        case config.Sinusoidal():
            return Sinusoidal(design, dim)
        case config.Learned():
            return Learned(design, dim)
        case None:
            return None
