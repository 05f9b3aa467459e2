"""The embedding layer: from token ids or images to the hidden states that enter the first block."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.adaptive import AdaptiveTokens
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.patches import Images, MaskedImages, Patches
from regard.transformer.position import EmbeddingPosition, Learned, Sinusoidal

EmbeddingInput = Int[Tensor, " tokens"] | Images | MaskedImages
"""Input of an embedding: packed token ids, or images."""


class Tokens(nn.Module):
    """The token embedding matrix. A language-modelling head may tie its output projection to it."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, dim))

    def forward(self, tokens: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        """Look up the vectors of the tokens."""
        try:
            return nn.functional.embedding(tokens, self.weight)
        except IndexError:
            wrong = tokens[(tokens < 0) | (tokens >= len(self.weight))]
            last = len(self.weight) - 1
            raise ValueError(
                f"token id {int(wrong[0])} is out of range: the network has ids from 0 to {last}. Is the tokenizer "
                "that of the model?"
            ) from None


class Embedding(nn.Module):
    """tokens · scale + segments + positions, then norm and dropout, and a projection if the sizes differ."""

    def __init__(
        self, design: config.Embedding, model_dim: int, shared: Tokens | AdaptiveTokens | Patches | None = None
    ) -> None:
        super().__init__()
        self.tokens: Tokens | AdaptiveTokens | Patches
        match design.tokens:
            case config.Tokens(vocabulary=vocabulary):
                self.tokens = Tokens(vocabulary, design.dim)
            case config.AdaptiveTokens() as adaptive:
                self.tokens = AdaptiveTokens(adaptive, design.dim)
            case config.SourceTokens():
                if not isinstance(shared, Tokens):
                    raise ValueError(
                        "SourceTokens is only valid for the target embedding of an encoder-decoder: use Tokens(…)"
                    )
                self.tokens = shared
            case config.Patches() as patches:
                self.tokens = Patches(patches, design.dim)
        self.scale = design.scale
        self.segments = Tokens(design.segments, design.dim) if design.segments else None
        self.position = _position(design.position, design.dim)
        self.norm = normalization.build(design.norm, design.dim) if design.norm else None
        self.dropout = nn.Dropout(design.dropout)
        if design.projection is None and design.dim != model_dim:
            raise ValueError(f"embedding dim {design.dim} differs from model_dim {model_dim}: add a Projection")
        self.projection = nn.Linear(design.dim, model_dim, design.projection.bias) if design.projection else None

    def example_hidden(self, model_dim: int) -> Float[Tensor, "1 model"]:
        """Return a tensor of the output's dtype, device and size, for `new_zeros` and the like."""
        return next(self.parameters()).new_zeros(1, model_dim)

    def forward(
        self, tokens: EmbeddingInput, layout: BatchLayout, segments: Int[Tensor, " tokens"] | None = None
    ) -> Float[Tensor, "tokens model"]:
        """Embed tokens or images. `segments` default to segment 0 if the network has segment embeddings."""
        x = self.tokens(tokens)
        if self.scale != 1:
            x = x * self.scale
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(layout.positions) if segments is None else segments)
        elif segments is not None:
            raise ValueError("this network has no segment embeddings: do not pass `segments`")
        if self.position is not None:
            x = x + self.position(layout, x.dtype)
        if self.norm is not None:
            x = self.norm(x)
        x = self.dropout(x)
        return x if self.projection is None else self.projection(x)


def _position(design: config.Sinusoidal | config.Learned | None, dim: int) -> EmbeddingPosition | None:
    match design:
        case config.Sinusoidal():
            return Sinusoidal(design, dim)
        case config.Learned():
            return Learned(design, dim)
        case None:
            return None
