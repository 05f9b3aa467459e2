"""Configs of complete networks."""

from dataclasses import dataclass

from regard.transformer.config.embedding import Embedding
from regard.transformer.config.head import Head
from regard.transformer.config.initialization import Initialization
from regard.transformer.config.stack import Stack


@dataclass(frozen=True, kw_only=True)
class EncoderOnly:
    """A bidirectional encoder: BERT, ViT. (The text encoder of CLIP has a causal mask.)"""

    model_dim: int
    """Size of the hidden states."""
    embedding: Embedding
    """The embedding layer."""
    encoder: Stack
    """The blocks."""
    head: Head | None
    """The head; None for hidden states only."""
    initialization: Initialization
    """Parameter initialisation."""


@dataclass(frozen=True, kw_only=True)
class DecoderOnly:
    """A causal decoder: GPT-2, Llama."""

    model_dim: int
    """Size of the hidden states."""
    embedding: Embedding
    """The embedding layer."""
    decoder: Stack
    """The blocks."""
    head: Head | None
    """The head; None for hidden states only."""
    initialization: Initialization
    """Parameter initialisation."""


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder:
    """An encoder for the source, and a decoder for the target that attends to it: 2017, BART, T5, Marian."""

    model_dim: int
    """Size of the hidden states."""
    source: Embedding
    """Embedding of the source tokens."""
    target: Embedding
    """Embedding of the target tokens."""
    encoder: Stack
    """The encoder blocks."""
    decoder: Stack
    """The decoder blocks."""
    head: Head | None
    """The head on the decoder; None for hidden states only."""
    initialization: Initialization
    """Parameter initialisation."""


@dataclass(frozen=True, kw_only=True)
class TwoStream:
    """Permutation language modelling (XLNet): a second stream predicts each token without attending to it."""

    model_dim: int
    """Size of the hidden states."""
    embedding: Embedding
    """The embedding layer."""
    encoder: Stack
    """The blocks, shared by both streams."""
    head: Head | None
    """The head; None for hidden states only."""
    initialization: Initialization
    """Parameter initialisation."""


@dataclass(frozen=True, kw_only=True)
class DualEncoder:
    """A text encoder and an image encoder with comparable embeddings: CLIP (Radford et al. 2021)."""

    text: EncoderOnly
    """The text encoder."""
    vision: EncoderOnly
    """The image encoder; its embeddings have the same size."""
    scale: float
    """Initial value of the trained parameter `scale`: the logarithm of the factor on the similarities."""


SingleNetwork = EncoderOnly | DecoderOnly | EncoderDecoder | TwoStream
Network = SingleNetwork | DualEncoder
