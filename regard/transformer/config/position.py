"""Where a token stands, and how a network is told."""

from dataclasses import dataclass

from regard.transformer.config.common import Layout


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Fixed waves added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    layout: Layout
    """How sines and cosines share the vector."""
    length: int
    """The longest row that the network is meant for. The formula itself knows no end."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """One trained vector for each position, added to the embeddings."""

    length: int
    """The longest row: there is no vector for a later position."""
    offset: int
    """How many unused vectors precede that of the first position (BART: 2)."""


@dataclass(frozen=True, kw_only=True)
class LinearStretch:
    """Rotary frequencies divided by a factor, for longer rows than were trained on."""

    factor: float
    """How many times longer."""


@dataclass(frozen=True, kw_only=True)
class LlamaStretch:
    """Llama 3.1's stretch: slow waves are slowed down, fast ones kept, those between blended."""

    factor: float
    """How much the slowest waves are slowed down."""
    low_frequency: float
    """Waves that turn fewer times than this within `original_length` are slowed down in full."""
    high_frequency: float
    """Waves that turn more often than this are kept."""
    original_length: int
    """The length of the rows of the first training."""


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Query and key turned by an angle that grows with the position (Su et al. 2021)."""

    base: float
    """The waves' lengths run from 2π to nearly 2π·base."""
    length: int
    """The longest row that the network is meant for."""
    stretch: LinearStretch | LlamaStretch | None
    """A change of the frequencies for longer rows, if there is one."""


@dataclass(frozen=True, kw_only=True)
class RelativeBuckets:
    """A trained number for each head and bucket of distances, added to the scores (Raffel et al. 2019)."""

    buckets: int
    """How many buckets; half of them for the tokens after, where the stack looks both ways."""
    distance: int
    """From this distance on, everything falls in the last bucket."""


@dataclass(frozen=True, kw_only=True)
class RelativeWaves:
    """Waves of the distance between query and key; each block makes scores of them (Dai et al. 2019)."""

    farthest: int | None
    """Larger distances count as this one, if it is given."""
    dropout: float = 0.0
    """Dropout of the waves."""


@dataclass(frozen=True, kw_only=True)
class Relative:
    """Scores of content and of distance: (query + u)·key + (query + v)·(waves of the distance)."""


@dataclass(frozen=True, kw_only=True)
class RelativeAndSegment:
    """The same, and a score of whether query and key are of the same segment (Yang et al. 2019)."""


@dataclass(frozen=True, kw_only=True)
class ALiBi:
    """A penalty that grows in proportion to the distance, with a slope for each head (Press et al. 2021)."""
