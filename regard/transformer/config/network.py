"""Configs of complete networks, and what follows from them: what a network reads and predicts, and its limits."""

from dataclasses import dataclass

from regard.transformer.config.embedding import AdaptiveTokens, Embedding, Patches, Tokens
from regard.transformer.config.head import Head, predictions
from regard.transformer.config.initialization import Initialization
from regard.transformer.config.position import Learned, Rotary, Sinusoidal
from regard.transformer.config.stack import Stack
from regard.transformer.interface import LengthLimits, Predicts, Reads

SourceAndTargetLimits = tuple[LengthLimits | None, LengthLimits]
"""The limits of the source (None without one) and of the other tokens."""


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

    @property
    def reads(self) -> Reads:
        """What the network reads."""
        return Reads.IMAGE if isinstance(self.embedding.tokens, Patches) else Reads.TOKENS

    @property
    def predicts(self) -> frozenset[Predicts]:
        """What the network predicts."""
        return predictions(self.head, Predicts.MASKED_TOKEN)

    @property
    def limits(self) -> SourceAndTargetLimits:
        """The vocabulary and the maximum lengths."""
        return None, _length_limits(self.embedding, self.encoder)


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

    @property
    def reads(self) -> Reads:
        """What the network reads."""
        return Reads.TOKENS

    @property
    def predicts(self) -> frozenset[Predicts]:
        """What the network predicts."""
        return predictions(self.head, Predicts.NEXT_TOKEN)

    @property
    def limits(self) -> SourceAndTargetLimits:
        """The vocabulary and the maximum lengths."""
        return None, _length_limits(self.embedding, self.decoder)


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

    @property
    def reads(self) -> Reads:
        """What the network reads."""
        return Reads.SOURCE_AND_TARGET

    @property
    def predicts(self) -> frozenset[Predicts]:
        """What the network predicts."""
        return predictions(self.head, Predicts.NEXT_TOKEN)

    @property
    def limits(self) -> SourceAndTargetLimits:
        """The vocabulary and the maximum lengths."""
        source = _length_limits(self.source, self.encoder)
        return source, _length_limits(self.target, self.decoder, source.vocabulary)


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

    @property
    def reads(self) -> Reads:
        """What the network reads."""
        return Reads.TOKENS

    @property
    def predicts(self) -> frozenset[Predicts]:
        """What the network predicts."""
        return predictions(self.head, Predicts.NEXT_TOKEN, Predicts.MASKED_TOKEN)

    @property
    def limits(self) -> SourceAndTargetLimits:
        """The vocabulary and the maximum lengths."""
        return None, _length_limits(self.embedding, self.encoder)


@dataclass(frozen=True, kw_only=True)
class DualEncoder:
    """A text encoder and an image encoder with comparable embeddings: CLIP (Radford et al. 2021)."""

    text: EncoderOnly
    """The text encoder."""
    vision: EncoderOnly
    """The image encoder; its embeddings have the same size."""
    scale: float
    """Initial value of the trained parameter `scale`: the logarithm of the factor on the similarities."""

    @property
    def model_dim(self) -> int:
        """Size of the hidden states of the text encoder."""
        return self.text.model_dim

    @property
    def reads(self) -> Reads:
        """What the network reads."""
        return Reads.TEXT_AND_IMAGE

    @property
    def predicts(self) -> frozenset[Predicts]:
        """What the network predicts."""
        return frozenset({Predicts.SIMILARITY})

    @property
    def limits(self) -> SourceAndTargetLimits:
        """The vocabulary and the maximum lengths."""
        return self.text.limits


def _length_limits(embedding: Embedding, stack: Stack, shared_vocabulary: int = 0) -> LengthLimits:
    tokens, position = embedding.tokens, embedding.position
    vocabulary = tokens.vocabulary if isinstance(tokens, Tokens | AdaptiveTokens) else shared_vocabulary
    max_positions = position.length if isinstance(position, Learned) else None
    context_length = position.length if isinstance(position, Sinusoidal) else max_positions
    if isinstance(stack.position, Rotary):
        context_length = stack.position.length
    return LengthLimits(vocabulary=vocabulary, max_positions=max_positions, context_length=context_length)


SingleNetwork = EncoderOnly | DecoderOnly | EncoderDecoder | TwoStream
Network = SingleNetwork | DualEncoder
