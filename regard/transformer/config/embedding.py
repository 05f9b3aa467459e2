"""From tokens, or patches of an image, to vectors."""

from dataclasses import dataclass

from regard.transformer.config.common import Norm
from regard.transformer.config.position import Learned, Sinusoidal


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A table with one trained vector for each token of the vocabulary."""

    vocabulary: int
    """How many tokens there are."""
    padding: int | None
    """The id that fills up short rows, if the family has one. It is never computed; training never reads its vector."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveTokens:
    """Tables in steps: rare tokens have smaller vectors, and a projection brings all to the model's size."""

    vocabulary: int
    """How many tokens there are, the frequent ones first."""
    cutoffs: tuple[int, ...]
    """Where the vectors become smaller: the first ids of the second table, the third and so on."""
    dim: int
    """The size of the first table's vectors."""
    divisor: int
    """Each next table's are smaller by this factor."""
    padding: int | None
    """The id that fills up short rows, if the family has one."""


@dataclass(frozen=True, kw_only=True)
class SourceTokens:
    """The token table of the encoder, used again by the decoder."""


@dataclass(frozen=True, kw_only=True)
class Patches:
    """An image cut into patches, each made a vector by one layer, and a trained class vector put before them."""

    image: tuple[int, ...]
    """Height and width of the images, in pixels."""
    patch: tuple[int, ...]
    """Height and width of a patch. What is left over at the lower and right edge is not read."""
    channels: int
    """How many numbers a pixel has (3: red, green, blue)."""
    bias: bool
    """Whether the layer has a bias."""
    mask_vector: bool
    """Whether there is a vector that stands for patches that are hidden (masked image modelling)."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A layer from the size of the embedding to that of the model (factorised embeddings)."""

    bias: bool
    """Whether it has a bias."""


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """From token ids to vectors: tokens · scale + segments + positions, then norm, dropout and projection."""

    tokens: Tokens | AdaptiveTokens | SourceTokens | Patches
    """The token table, or how images are cut."""
    dim: int
    """The size of its vectors: the model's, unless a projection follows."""
    scale: float
    """What token vectors are multiplied by (2017: the root of the model's size)."""
    segments: int
    """How many kinds of segment there are (BERT: 2), 0 where segments are unknown."""
    position: Sinusoidal | Learned | None
    """What is added for the position."""
    norm: Norm | None
    """The norm of the sum."""
    projection: Projection | None
    """What brings the sum to the model's size, where tables are smaller (ALBERT, ELECTRA)."""
    dropout: float = 0.0
    """Dropout of the sum."""
