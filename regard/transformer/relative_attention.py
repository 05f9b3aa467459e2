"""Attention whose scores know distances: Transformer-XL's and XLNet's.

    (query + u)·key + (query + v)·W(waves of the distance)

and, in XLNet, (query + s)·(own or other segment). It is the attention of `attention.py` in all but this: the query that
meets the keys carries u, and all else is added to the scores. What it attends to may reach back into the segment before
(`cache.Memory`): vectors are remembered, not keys, so that the projection of keys learns from them too.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.attention import Looking, MultiHeadAttention, Source
from regard.transformer.batch_layout import Group
from regard.transformer.cache import Kept, Remembered
from regard.transformer.position import Relative, SegmentScores, Waves


class RelativeAttention(MultiHeadAttention):
    """Multi-head attention to the row itself and to what is remembered of it, by content and distance."""

    def __init__(self, design: config.Attention, model_dim: int) -> None:
        super().__init__(design, model_dim)
        self.relative = Relative(design, model_dim)
        self.segments = SegmentScores(design) if isinstance(design.position, config.RelativeAndSegment) else None

    def forward(
        self,
        hidden: Float[Tensor, "tokens model"],
        looking: Looking,
        source: Source | None = None,
        kept: Kept | Remembered | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Attend to the row itself and, with `kept`, to what is remembered of it."""
        assert source is None
        return self.second(hidden, self.recall(hidden, looking, kept), looking)

    def recall(self, hidden: Float[Tensor, "tokens model"], looking: Looking, kept: object) -> Source:
        """What can be attended to: what is remembered, and these tokens behind it."""
        if isinstance(kept, Remembered):
            return Source(*kept.extend(hidden, looking.rows))
        return Source(hidden, looking.rows)

    def second(
        self, asking: Float[Tensor, "tokens model"], everything: Source, looking: Looking
    ) -> Float[Tensor, "tokens model"]:
        """Let these vectors ask what those answer: XLNet's second stream asks with vectors of its own."""
        query = self.project.asking(asking)
        key, value = self.project.answering(everything.vectors)
        return self.output(self._rowwise(query, key, value, looking, everything.rows))

    def ask(
        self,
        query: Float[Tensor, "rows heads query dim"],
        asked: Group,
        at: Int[Tensor, "#rows query"],
        seen: Int[Tensor, "#rows key"],
        looking: Looking,
    ) -> tuple[Float[Tensor, "rows heads query dim"], Float[Tensor, "#rows heads query key"] | None]:
        """The query with u, and the scores of distance and segment."""
        waves = looking.position
        assert isinstance(waves, Waves)
        asking, bias = self.relative(query, at, seen, waves)
        if self.segments is not None and waves.segments is not None:
            own = waves.segments[asked.tokens].view(asked.count, -1)
            # What is remembered counts as the first segment.
            all_keys = nn.functional.pad(own, (seen.shape[1] - own.shape[1], 0))
            bias = bias + self.segments(query, own, all_keys)
        return asking, bias


def build(design: config.Attention, model_dim: int) -> MultiHeadAttention:
    """The attention that a config describes."""
    return MultiHeadAttention(design, model_dim) if design.position is None else RelativeAttention(design, model_dim)
