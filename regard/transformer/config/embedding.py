"""Configs of the embedding layer: tokens or image patches, positions and segments."""

from dataclasses import dataclass

from regard.transformer.config.common import Norm
from regard.transformer.config.position import Learned, Sinusoidal


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A token embedding matrix: one learned vector per token of the vocabulary."""

    vocabulary: int
    """Number of tokens."""
    padding: int | None
    """Padding id, if the family has one. Padding is removed before the embedding, so its vector is never used."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveTokens:
    """An adaptive embedding: rare tokens have smaller vectors, and projections map all to the size of the model."""

    vocabulary: int
    """Number of tokens, sorted by descending frequency."""
    cutoffs: tuple[int, ...]
    """First ids of the second cluster, the third and so on."""
    dim: int
    """Vector size of the first cluster."""
    divisor: int
    """Factor by which the vector size decreases from one cluster to the next."""
    padding: int | None
    """Padding id, if the family has one."""


@dataclass(frozen=True, kw_only=True)
class SourceTokens:
    """The token embedding of the encoder, tied: for the target of an encoder-decoder."""


@dataclass(frozen=True, kw_only=True)
class Patches:
    """A patch embedding: a linear layer on each patch of an image, after a learned class vector."""

    image: tuple[int, ...]
    """Height and width of the images, in pixels."""
    patch: tuple[int, ...]
    """Height and width of a patch, in pixels. Remaining pixels at the lower and right edge are ignored."""
    channels: int
    """Number of channels (3: red, green, blue)."""
    bias: bool
    """Whether the linear layer has a bias."""
    mask_vector: bool
    """Whether there is a learned vector that replaces masked patches (masked image modelling)."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A linear layer from the embedding size to the model size (factorised embeddings)."""

    bias: bool
    """Whether it has a bias."""


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The embedding layer: tokens · scale + segments + positions, then norm, dropout and projection."""

    tokens: Tokens | AdaptiveTokens | SourceTokens | Patches
    """The token embedding, or the patch embedding of images."""
    dim: int
    """Embedding size: equal to model_dim, unless a projection follows."""
    scale: float
    """Factor on the token embeddings (2017: √model_dim)."""
    segments: int
    """Number of segment types (BERT: 2); 0 for no segment embeddings."""
    position: Sinusoidal | Learned | None
    """Position encoding that is added."""
    norm: Norm | None
    """Norm of the sum."""
    projection: Projection | None
    """Projection to the model size, if the embedding size is smaller (ALBERT, ELECTRA)."""
    dropout: float = 0.0
    """Dropout of the sum."""
