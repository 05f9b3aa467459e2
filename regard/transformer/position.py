"""Where a token stands in its row, told to a network that by itself would not know.

Positions enter in one of three places, and each place has its kind of part:

    at the embedding     Sinusoidal, Learned             position -> a vector that is added
    on query and key     Rotary                          position -> angles by which both are turned
    on the scores        RelativeBuckets, ALiBi          two positions -> a number for each head that is added
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.batch_layout import Rows
from regard.transformer.config import Layout


def frequencies(dim: int, base: float) -> Float[Tensor, " half"]:
    """base^(-2i/dim): how fast each of the waves turns, from 1 down to nearly 1/base."""
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def angles(begin: int, end: int, speed: Float[Tensor, " half"]) -> Float[Tensor, "positions half"]:
    """position · speed for all positions from `begin` to `end`, in float64: exact for any of them."""
    return torch.arange(begin, end, dtype=torch.float64)[:, None] * speed


KNOWN = 16384
"""Up to this position, numbers that follow from positions alone are worked out once."""
Tables = tuple[Float[Tensor, "positions some"], ...]


class Computed(nn.Module):
    """What follows from positions alone. A decoder asks for it at every token, so it is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[torch.dtype, torch.device], Tables] = {}

    def tables(self, begin: int, end: int) -> Tables:
        """The numbers of the positions from `begin` to `end`, in float64."""
        raise NotImplementedError

    def at(self, rows: Rows, dtype: torch.dtype) -> Tables:
        """The numbers at each token."""
        if rows.end > KNOWN:
            here = rows.positions - rows.begin
            return tuple(table.to(rows.device, dtype)[here] for table in self.tables(rows.begin, rows.end))
        return tuple(table[rows.positions] for table in self.known(rows.end, dtype, rows.device))

    def known(self, end: int, dtype: torch.dtype, device: torch.device) -> Tables:
        """The numbers of all positions from 0 on, up to `end` at least."""
        known = self._known.get((dtype, device))
        if known is None or len(known[0]) < end:
            with torch.inference_mode(False):
                enough = max(256, 1 << (end - 1).bit_length())
                known = tuple(table.to(device, dtype) for table in self.tables(0, enough))
            self._known[dtype, device] = known
        return known


class Sinusoidal(Computed):
    """sin and cos of the position at wave lengths from 2π to 10000·2π (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, design: config.Sinusoidal, dim: int) -> None:
        super().__init__()
        self.layout = design.layout
        self.length = design.length
        self.dim = dim

    def forward(self, rows: Rows, dtype: torch.dtype) -> Float[Tensor, "tokens dim"]:
        """The vector to add at each token."""
        return self.at(rows, dtype)[0]

    def tables(self, begin: int, end: int) -> tuple[Float[Tensor, "positions dim"]]:
        """The vectors of the positions from `begin` to `end`."""
        turned = angles(begin, end, frequencies(self.dim, 10000.0))
        sine, cosine = turned.sin(), turned.cos()[:, : self.dim // 2]
        if self.layout is Layout.HALVES:
            return (torch.cat([sine, cosine], dim=1),)
        table = torch.empty(len(turned), self.dim, dtype=torch.float64)
        table[:, 0::2], table[:, 1::2] = sine, cosine
        return (table,)


class Learned(nn.Module):
    """A table with one trained vector for each position."""

    def __init__(self, design: config.Learned, dim: int) -> None:
        super().__init__()
        self.offset = design.offset
        self.length = design.length
        self.weight = nn.Parameter(torch.empty(design.length + design.offset, dim))

    def forward(self, rows: Rows, dtype: torch.dtype) -> Float[Tensor, "tokens dim"]:
        """The vector to add at each token."""
        return nn.functional.embedding(rows.positions + self.offset, self.weight).to(dtype)


@dataclass(frozen=True)
class Rotation:
    """The angles by which the queries and keys of a batch are turned."""

    cosine: Float[Tensor, "tokens 1 half"]
    sine: Float[Tensor, "tokens 1 half"]

    def turn(self, x: Float[Tensor, "tokens heads dim"]) -> Float[Tensor, "tokens heads dim"]:
        """Each pair (xᵢ, xᵢ₊ₕ), h being half the size, turned like a point in the plane."""
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * self.cosine - right * self.sine, right * self.cosine + left * self.sine], dim=-1)


class Rotary(Computed):
    """Turns query and key, so that their product depends on how far apart they are (Su et al. 2021)."""

    def __init__(self, design: config.Rotary, head_dim: int) -> None:
        super().__init__()
        self.design = design
        self.length = design.length
        self.head_dim = head_dim

    def forward(self, rows: Rows, dtype: torch.dtype) -> Rotation:
        """The angles for the tokens of a batch."""
        cosine, sine = self.at(rows, dtype)
        return Rotation(cosine[:, None], sine[:, None])

    def tables(self, begin: int, end: int) -> Tables:
        """Cosine and sine of the angles at the positions from `begin` to `end`."""
        turned = angles(begin, end, self.speed())
        return turned.cos(), turned.sin()

    def speed(self) -> Float[Tensor, " half"]:
        """How fast each pair turns."""
        plain = frequencies(self.head_dim, self.design.base)
        match self.design.stretch:
            case None:
                return plain
            case config.LinearStretch(factor=factor):
                return plain / factor
            case config.LlamaStretch() as stretch:
                turns = stretch.original_length * plain / (2 * math.pi)
                kept = (turns - stretch.low_frequency) / (stretch.high_frequency - stretch.low_frequency)
                kept = kept.clamp(0, 1)
                return kept * plain + (1 - kept) * plain / stretch.factor


class RelativeBuckets(nn.Module):
    """A trained number for each head and bucket of distances (Raffel et al. 2019)."""

    def __init__(self, design: config.RelativeBuckets, heads: int, both_ways: bool) -> None:
        super().__init__()
        self.distance = design.distance
        self.both_ways = both_ways
        self.weight = nn.Parameter(torch.empty(design.buckets, heads))

    def forward(
        self, query: Int[Tensor, "#rows query"], key: Int[Tensor, "#rows key"]
    ) -> Float[Tensor, "#rows heads query key"]:
        """What is added to the scores of queries and keys at these positions."""
        distance = key[:, None, :] - query[:, :, None]
        return nn.functional.embedding(self.bucket(distance), self.weight).permute(0, 3, 1, 2)

    def bucket(self, distance: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """Near distances have a bucket each; far ones share buckets that grow with the logarithm."""
        buckets = len(self.weight)
        if self.both_ways:
            buckets //= 2
            first = (distance > 0) * buckets
            distance = distance.abs()
        else:
            first = torch.zeros_like(distance)
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        # In float32, as T5 was trained: at the edges of buckets another precision would fall on the other side.
        far = (distance.float() / exact).log() / math.log(self.distance / exact) * (buckets - exact)
        far = (exact + far.clamp(min=0).long()).clamp(max=buckets - 1)
        return first + torch.where(distance < exact, distance, far)


class ALiBi(nn.Module):
    """-slope · distance, a slope for each head from 1/2 downwards (Press et al. 2021). Nothing is trained."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def slopes(self) -> Float[Tensor, " heads"]:
        """2^(-8/n), 2^(-16/n), … for n heads; where n is no power of two, every other slope of the next fills up."""
        power = 2 ** math.floor(math.log2(self.heads))
        steps = [-8 * (i + 1) / power for i in range(power)]
        steps += [-8 * (i + 1) / (2 * power) for i in range(0, 2 * (self.heads - power), 2)]
        return 2 ** torch.tensor(steps, dtype=torch.float64)

    def forward(
        self, query: Int[Tensor, "#rows query"], key: Int[Tensor, "#rows key"]
    ) -> Float[Tensor, "#rows heads query key"]:
        """What is added to the scores of queries and keys at these positions."""
        distance = (key[:, None, None, :] - query[:, None, :, None]).abs()
        return -self.slopes().to(query.device)[:, None, None] * distance


@dataclass(frozen=True)
class Waves:
    """Sines and cosines of every distance that a batch has, from `first` upwards."""

    table: Float[Tensor, "distances model"]
    first: int
    segments: Int[Tensor, " tokens"] | None = None
    """The segment of each token, where segments are scored too."""


class RelativeWaves(nn.Module):
    """The 2017 paper's waves, of distances instead of positions; nothing is trained here."""

    def __init__(self, design: config.RelativeWaves, model_dim: int, both_ways: bool) -> None:
        super().__init__()
        self.farthest = design.farthest
        self.model_dim = model_dim
        self.both_ways = both_ways
        self.dropout = nn.Dropout(design.dropout)

    def forward(self, rows: Rows, dtype: torch.dtype) -> Waves:
        """The waves of the distances from each query back to the first key and, both ways, on to the last."""
        first = rows.begin - rows.end + 1 if self.both_ways else 0
        distance = torch.arange(first, rows.end, dtype=torch.float64)
        if self.farthest is not None:
            distance = distance.clamp(-self.farthest, self.farthest)
        turned = distance[:, None] * frequencies(self.model_dim, 10000.0)
        table = torch.cat([turned.sin(), turned.cos()], dim=1)
        return Waves(self.dropout(table.to(rows.device, dtype)), first)


class Relative(nn.Module):
    """(q + u)·k + (q + v)·r, with r made of the waves of the distance (Dai et al. 2019, section 3.3)."""

    def __init__(self, design: config.Attention, model_dim: int) -> None:
        super().__init__()
        self.scale = design.scale
        self.project = nn.Linear(model_dim, design.heads * design.head_dim, bias=False)
        self.content = nn.Parameter(torch.empty(design.heads, design.head_dim))
        self.distance = nn.Parameter(torch.empty(design.heads, design.head_dim))

    def forward(
        self,
        query: Float[Tensor, "rows heads query dim"],
        at: Int[Tensor, "#rows query"],
        seen: Int[Tensor, "#rows key"],
        waves: Waves,
    ) -> tuple[Float[Tensor, "rows heads query dim"], Float[Tensor, "rows heads query key"]]:
        """The query to use with the keys, and what is added to the scores."""
        places = self.project(waves.table).unflatten(-1, self.content.shape)
        scores = torch.einsum("rhqd,phd->rhqp", query + self.distance[:, None], places) * self.scale
        which = (at[:, :, None] - seen[:, None, :] - waves.first).clamp(0, len(waves.table) - 1)
        bias = scores.gather(-1, which[:, None].expand(len(query), query.shape[1], -1, -1))
        return query + self.content[:, None], bias


class SegmentScores(nn.Module):
    """(q + s)·e, with one vector e for keys of the query's own segment and one for others (Yang et al. 2019)."""

    def __init__(self, design: config.Attention) -> None:
        super().__init__()
        self.scale = design.scale
        self.segment = nn.Parameter(torch.empty(design.heads, design.head_dim))
        self.weight = nn.Parameter(torch.empty(2, design.heads, design.head_dim))

    def forward(
        self,
        query: Float[Tensor, "rows heads query dim"],
        of_query: Int[Tensor, "rows query"],
        of_key: Int[Tensor, "rows key"],
    ) -> Float[Tensor, "rows heads query key"]:
        """What is added to the scores."""
        both = torch.einsum("rhqd,shd->rhqs", query + self.segment[:, None], self.weight) * self.scale
        other = (of_query[:, :, None] != of_key[:, None, :]).long()
        return both.gather(-1, other[:, None].expand(-1, query.shape[1], -1, -1))


AtEmbedding = Sinusoidal | Learned
OnScores = RelativeBuckets | ALiBi
Shared = Rotary | RelativeWaves | OnScores
