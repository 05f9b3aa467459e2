"""Position encodings. Without them, attention is permutation-equivariant.

Positions enter a network in one of three ways:

    at the embedding     Sinusoidal, Learned             position -> a vector that is added
    on query and key     Rotary                          position -> angles by which both are rotated
    on the scores        RelativeBuckets, ALiBi,         two positions -> an additive bias for each head
                         RelativeWaves
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import Layout


def frequencies(dim: int, base: float) -> Float[Tensor, " half"]:
    """Return the frequencies base^(-2i/dim), from 1 down to nearly 1/base."""
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def angles(start: int, end: int, frequencies: Float[Tensor, " half"]) -> Float[Tensor, "positions half"]:
    """Return position · frequency for all positions from `start` to `end` (exclusive), in float64 for precision."""
    return torch.arange(start, end, dtype=torch.float64)[:, None] * frequencies


PRECOMPUTED_POSITIONS = 16384
"""Tables of position values are cached up to this position."""
Tables = tuple[Float[Tensor, "positions _"], ...]


class PrecomputedPositions(nn.Module):
    """Base class of encodings that depend on positions only. Tables are cached: a decoder needs them at each step."""

    def __init__(self) -> None:
        super().__init__()
        self._memo: dict[tuple[torch.dtype, torch.device], Tables] = {}

    def compute_tables(self, start: int, end: int) -> Tables:
        """Compute the tables for the positions from `start` to `end` (exclusive), in float64."""
        raise NotImplementedError

    def lookup(self, layout: BatchLayout, dtype: torch.dtype) -> Tables:
        """Return the table rows for each token of a batch."""
        if layout.end_position > PRECOMPUTED_POSITIONS:
            indices = layout.positions - layout.first_position
            return tuple(
                table.to(layout.device, dtype)[indices]
                for table in self.compute_tables(layout.first_position, layout.end_position)
            )
        return tuple(table[layout.positions] for table in self.cached_tables(layout.end_position, dtype, layout.device))

    def cached_tables(self, end: int, dtype: torch.dtype, device: torch.device) -> Tables:
        """Return the cached tables for the positions from 0 to at least `end`."""
        tables = self._memo.get((dtype, device))
        if tables is None or len(tables[0]) < end:
            with torch.inference_mode(False):
                size = max(256, 1 << (end - 1).bit_length())
                tables = tuple(table.to(device, dtype) for table in self.compute_tables(0, size))
            self._memo[dtype, device] = tables
        return tables


class Sinusoidal(PrecomputedPositions):
    """Sine and cosine of the position at wavelengths from 2π to 10000·2π (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, design: config.Sinusoidal, dim: int) -> None:
        super().__init__()
        self.layout = design.layout
        self.length = design.length
        self.dim = dim

    def forward(self, layout: BatchLayout, dtype: torch.dtype) -> Float[Tensor, "tokens dim"]:
        """Return the vector to add at each token."""
        return self.lookup(layout, dtype)[0]

    def compute_tables(self, start: int, end: int) -> tuple[Float[Tensor, "positions dim"]]:
        """Compute the vectors for the positions from `start` to `end` (exclusive)."""
        phases = angles(start, end, frequencies(self.dim, 10000.0))
        sine, cosine = phases.sin(), phases.cos()[:, : self.dim // 2]
        if self.layout is Layout.HALVES:
            return (torch.cat([sine, cosine], dim=1),)
        table = torch.empty(len(phases), self.dim, dtype=torch.float64)
        table[:, 0::2], table[:, 1::2] = sine, cosine
        return (table,)


class Learned(nn.Module):
    """A learned vector for each position."""

    def __init__(self, design: config.Learned, dim: int) -> None:
        super().__init__()
        self.offset = design.offset
        self.length = design.length
        self.weight = nn.Parameter(torch.empty(design.length + design.offset, dim))

    def forward(self, layout: BatchLayout, dtype: torch.dtype) -> Float[Tensor, "tokens dim"]:
        """Return the vector to add at each token."""
        return nn.functional.embedding(layout.positions + self.offset, self.weight).to(dtype)


@dataclass(frozen=True)
class Rotation:
    """Cosine and sine of the angles by which the queries and keys of a batch are rotated."""

    cosine: Float[Tensor, "tokens 1 half"]
    sine: Float[Tensor, "tokens 1 half"]

    def rotate(self, x: Float[Tensor, "tokens heads dim"]) -> Float[Tensor, "tokens heads dim"]:
        """Rotate each pair (xᵢ, xᵢ₊ₕ), where h is half the head size, as a point in the plane."""
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * self.cosine - right * self.sine, right * self.cosine + left * self.sine], dim=-1)


class Rotary(PrecomputedPositions):
    """Rotates queries and keys, so that their dot product depends on their distance (RoPE, Su et al. 2021)."""

    def __init__(self, design: config.Rotary, head_dim: int) -> None:
        super().__init__()
        self.design = design
        self.length = design.length
        self.head_dim = head_dim

    def forward(self, layout: BatchLayout, dtype: torch.dtype) -> Rotation:
        """Return the rotation for the tokens of a batch."""
        cosine, sine = self.lookup(layout, dtype)
        return Rotation(cosine[:, None], sine[:, None])

    def compute_tables(self, start: int, end: int) -> Tables:
        """Compute cosine and sine of the angles for the positions from `start` to `end` (exclusive)."""
        phases = angles(start, end, self.scaled_frequencies())
        return phases.cos(), phases.sin()

    def scaled_frequencies(self) -> Float[Tensor, " half"]:
        """Return the rotation frequency of each pair, after RoPE scaling."""
        unscaled = frequencies(self.head_dim, self.design.base)
        match self.design.stretch:
            case None:
                return unscaled
            case config.LinearStretch(factor=factor):
                return unscaled / factor
            case config.LlamaStretch() as stretch:
                rotations = stretch.original_length * unscaled / (2 * math.pi)
                smooth = (rotations - stretch.low_frequency) / (stretch.high_frequency - stretch.low_frequency)
                smooth = smooth.clamp(0, 1)
                return smooth * unscaled + (1 - smooth) * unscaled / stretch.factor


class RelativeBuckets(nn.Module):
    """A learned bias per head and distance bucket (T5, Raffel et al. 2019)."""

    def __init__(self, design: config.RelativeBuckets, heads: int, bidirectional: bool) -> None:
        super().__init__()
        self.distance = design.distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.empty(design.buckets, heads))

    def forward(
        self, query: Int[Tensor, "#rows query"], key: Int[Tensor, "#rows key"]
    ) -> Float[Tensor, "#rows heads query key"]:
        """Return the additive attention bias for queries and keys at these positions."""
        distance = key[:, None, :] - query[:, :, None]
        return nn.functional.embedding(self.bucket(distance), self.weight).permute(0, 3, 1, 2)

    def bucket(self, distance: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """Return the bucket of each distance: one per small distance, logarithmic ranges for large distances."""
        buckets = len(self.weight)
        if self.bidirectional:
            buckets //= 2
            first = (distance > 0) * buckets
            distance = distance.abs()
        else:
            first = torch.zeros_like(distance)
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        # In float32, as T5 was trained: another precision would assign some distances at the edges to other buckets.
        far = (distance.float() / exact).log() / math.log(self.distance / exact) * (buckets - exact)
        far = (exact + far.clamp(min=0).long()).clamp(max=buckets - 1)
        return first + torch.where(distance < exact, distance, far)


class ALiBi(nn.Module):
    """The bias -slope · distance, with a fixed slope per head: 1/2, 1/4, … for 8 heads (Press et al. 2021)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def slopes(self) -> Float[Tensor, " heads"]:
        """Return the slopes 2^(-8/n), 2^(-16/n), … for n heads.

        If n is not a power of two, the slopes are those of the next lower power, and then every other slope of the next
        higher one.
        """
        power = 2 ** math.floor(math.log2(self.heads))
        exponents = [-8 * (i + 1) / power for i in range(power)]
        exponents += [-8 * (i + 1) / (2 * power) for i in range(0, 2 * (self.heads - power), 2)]
        return 2 ** torch.tensor(exponents, dtype=torch.float64)

    def forward(
        self, query: Int[Tensor, "#rows query"], key: Int[Tensor, "#rows key"]
    ) -> Float[Tensor, "#rows heads query key"]:
        """Return the additive attention bias for queries and keys at these positions."""
        distance = (key[:, None, None, :] - query[:, None, :, None]).abs()
        return -self.slopes().to(query.device)[:, None, None] * distance


@dataclass(frozen=True)
class RelativeEncoding:
    """Sinusoidal encodings of all distances in a batch."""

    table: Float[Tensor, "distances model"]
    first_distance: int
    """The distance of the first row of `table`; each next row is one more."""
    segments: Int[Tensor, " tokens"] | None = None
    """Segment of each token, if the attention has a segment bias."""


class RelativeWaves(nn.Module):
    """The sinusoidal encoding of the 2017 paper, of distances instead of positions (Transformer-XL). No parameters."""

    def __init__(self, design: config.RelativeWaves, model_dim: int, bidirectional: bool) -> None:
        super().__init__()
        self.farthest = design.farthest
        self.model_dim = model_dim
        self.bidirectional = bidirectional
        self.dropout = nn.Dropout(design.dropout)

    def forward(self, layout: BatchLayout, dtype: torch.dtype) -> RelativeEncoding:
        """Encode the distances from each query back to the first key and, if bidirectional, forward to the last."""
        first = layout.first_position - layout.end_position + 1 if self.bidirectional else 0
        distance = torch.arange(first, layout.end_position, dtype=torch.float64)
        if self.farthest is not None:
            distance = distance.clamp(-self.farthest, self.farthest)
        phases = distance[:, None] * frequencies(self.model_dim, 10000.0)
        table = torch.cat([phases.sin(), phases.cos()], dim=1)
        return RelativeEncoding(self.dropout(table.to(layout.device, dtype)), first)


class Relative(nn.Module):
    """(q + u)·k + (q + v)·r, with r projected from the encoding of the distance (Dai et al. 2019, section 3.3)."""

    def __init__(self, design: config.Attention, model_dim: int) -> None:
        super().__init__()
        self.scale = design.scale
        self.project = nn.Linear(model_dim, design.heads * design.head_dim, bias=False)
        self.content = nn.Parameter(torch.empty(design.heads, design.head_dim))
        self.distance = nn.Parameter(torch.empty(design.heads, design.head_dim))

    def forward(
        self,
        query: Float[Tensor, "rows heads query dim"],
        query_positions: Int[Tensor, "#rows query"],
        key_positions: Int[Tensor, "#rows key"],
        encoding: RelativeEncoding,
    ) -> tuple[Float[Tensor, "rows heads query dim"], Float[Tensor, "rows heads query key"]]:
        """Return the query plus u, and the additive attention bias (q + v)·r."""
        projected = self.project(encoding.table).unflatten(-1, self.content.shape)
        scores = torch.einsum("rhqd,phd->rhqp", query + self.distance[:, None], projected) * self.scale
        index = (query_positions[:, :, None] - key_positions[:, None, :] - encoding.first_distance).clamp(
            0, len(encoding.table) - 1
        )
        bias = scores.gather(-1, index[:, None].expand(len(query), query.shape[1], -1, -1))
        return query + self.content[:, None], bias


class SegmentBias(nn.Module):
    """(q + s)·e, with one vector e for keys in the query's segment and one for other keys (Yang et al. 2019)."""

    def __init__(self, design: config.Attention) -> None:
        super().__init__()
        self.scale = design.scale
        self.segment = nn.Parameter(torch.empty(design.heads, design.head_dim))
        self.weight = nn.Parameter(torch.empty(2, design.heads, design.head_dim))

    def forward(
        self,
        query: Float[Tensor, "rows heads query dim"],
        query_segments: Int[Tensor, "rows query"],
        key_segments: Int[Tensor, "rows key"],
    ) -> Float[Tensor, "rows heads query key"]:
        """Return the additive attention bias."""
        scores = torch.einsum("rhqd,shd->rhqs", query + self.segment[:, None], self.weight) * self.scale
        differs = (query_segments[:, :, None] != key_segments[:, None, :]).long()
        return scores.gather(-1, differs[:, None].expand(-1, query.shape[1], -1, -1))


EmbeddingPosition = Sinusoidal | Learned
ScoreBias = RelativeBuckets | ALiBi
StackPosition = Rotary | RelativeWaves | ScoreBias
