"""Whole networks."""

from dataclasses import dataclass

from regard.transformer.config.embedding import Embedding
from regard.transformer.config.head import Head
from regard.transformer.config.initialization import Initialization
from regard.transformer.config.stack import Stack


@dataclass(frozen=True, kw_only=True)
class EncoderOnly:
    """Every position sees every other: BERT, the vision Transformer. (CLIP's text encoder has a causal mask.)"""

    model_dim: int
    """The size of the vectors that flow through the blocks."""
    embedding: Embedding
    """From tokens to vectors."""
    encoder: Stack
    """The blocks."""
    head: Head | None
    """What the vectors are used for."""
    initialization: Initialization
    """How untrained parameters start."""


@dataclass(frozen=True, kw_only=True)
class DecoderOnly:
    """Every position sees those before it: GPT-2, Llama."""

    model_dim: int
    """The size of the vectors that flow through the blocks."""
    embedding: Embedding
    """From tokens to vectors."""
    decoder: Stack
    """The blocks."""
    head: Head | None
    """What the vectors are used for."""
    initialization: Initialization
    """How untrained parameters start."""


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder:
    """An encoder reads the source; a decoder writes the target and attends to it: 2017, BART, T5, Marian."""

    model_dim: int
    """The size of the vectors that flow through the blocks."""
    source: Embedding
    """From source tokens to vectors."""
    target: Embedding
    """From target tokens to vectors."""
    encoder: Stack
    """The blocks that read."""
    decoder: Stack
    """The blocks that write."""
    head: Head | None
    """What the decoder's vectors are used for."""
    initialization: Initialization
    """How untrained parameters start."""


@dataclass(frozen=True, kw_only=True)
class TwoStream:
    """An encoder that guesses tokens in any order: a second stream asks for a token without seeing it (XLNet)."""

    model_dim: int
    """The size of the vectors that flow through the blocks."""
    embedding: Embedding
    """From tokens to vectors."""
    encoder: Stack
    """The blocks, through which both streams pass."""
    head: Head | None
    """What the vectors are used for."""
    initialization: Initialization
    """How untrained parameters start."""


@dataclass(frozen=True, kw_only=True)
class DualEncoder:
    """Two encoders, of texts and of images, whose features can be compared: CLIP (Radford et al. 2021)."""

    text: EncoderOnly
    """Makes a vector of a text."""
    vision: EncoderOnly
    """Makes a vector of an image, of the same size."""
    scale: float
    """What similarities are multiplied by when training starts, as a logarithm: it is trained like any parameter."""


SingleNetwork = EncoderOnly | DecoderOnly | EncoderDecoder | TwoStream
Network = SingleNetwork | DualEncoder
