"""Configs of position encodings."""

from dataclasses import dataclass

from regard.transformer.config.common import Layout


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Fixed sinusoidal encodings, added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    layout: Layout
    """Order of sines and cosines in the vector."""
    length: int
    """Maximum length that the network is meant for. The formula itself has no limit."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """One learned vector per position, added to the embeddings."""

    length: int
    """Number of positions: the maximum length of a sequence."""
    offset: int
    """Number of unused vectors before that of the first position (BART: 2)."""


@dataclass(frozen=True, kw_only=True)
class LinearStretch:
    """Linear RoPE scaling: frequencies divided by a factor, for sequences longer than in training."""

    factor: float
    """Ratio of the new maximum length to that of training."""


@dataclass(frozen=True, kw_only=True)
class LlamaStretch:
    """RoPE scaling of Llama 3.1: low frequencies are divided by a factor, high ones unchanged, others interpolated."""

    factor: float
    """Divisor of the lowest frequencies."""
    low_frequency: float
    """Pairs with fewer rotations than this within `original_length` get the full factor."""
    high_frequency: float
    """Pairs with more rotations than this are unchanged."""
    original_length: int
    """Maximum length in the original training."""


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions (RoPE): queries and keys rotated by angles proportional to the position (Su et al. 2021)."""

    base: float
    """Base of the frequencies: wavelengths range from 2π to nearly 2π·base."""
    length: int
    """Maximum length that the network is meant for."""
    stretch: LinearStretch | LlamaStretch | None
    """RoPE scaling, for longer sequences."""


@dataclass(frozen=True, kw_only=True)
class RelativeBuckets:
    """A learned bias per head and distance bucket, added to the attention scores (T5, Raffel et al. 2019)."""

    buckets: int
    """Number of buckets; in a bidirectional stack, half of them are for later tokens."""
    distance: int
    """Distances from this one on share the last bucket."""


@dataclass(frozen=True, kw_only=True)
class RelativeWaves:
    """Sinusoidal encodings of the distance; each block projects them to an attention bias (Dai et al. 2019)."""

    farthest: int | None
    """Maximum distance: larger ones are clamped to it. None for no limit."""
    dropout: float = 0.0
    """Dropout of the encodings."""


@dataclass(frozen=True, kw_only=True)
class Relative:
    """Attention scores of content and distance: (query + u)·key + (query + v)·(encoding of the distance)."""


@dataclass(frozen=True, kw_only=True)
class RelativeAndSegment:
    """As `Relative`, plus a bias for whether query and key are in the same segment (XLNet, Yang et al. 2019)."""


@dataclass(frozen=True, kw_only=True)
class ALiBi:
    """An attention bias proportional to the distance, with a slope per head (Press et al. 2021)."""
