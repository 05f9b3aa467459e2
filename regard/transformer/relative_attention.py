"""Attention with relative positions, as in Transformer-XL and XLNet. The attention scores are

    (query + u)·key + (query + v)·W(sinusoidal encoding of the distance)

and XLNet adds (query + s)·(same or other segment). This is the attention of `attention.py` with two changes: u is added
to the query, and the other terms are an additive attention bias. It may attend to the segment before (`cache.Memory`).
The memory holds hidden states, not keys, so that the key projection gets gradients from it too.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.attention import AttentionContext, EncoderOutput, MultiHeadAttention
from regard.transformer.batch_layout import EqualLengthGroup
from regard.transformer.cache import LayerKVCache, SegmentMemory
from regard.transformer.position import Relative, RelativeEncoding, SegmentBias


class RelativeAttention(MultiHeadAttention):
    """Multi-head attention to the sequence itself and to its segment memory, by content and distance."""

    def __init__(self, design: config.Attention, model_dim: int) -> None:
        super().__init__(design, model_dim)
        self.relative = Relative(design, model_dim)
        self.segments = SegmentBias(design) if isinstance(design.position, config.RelativeAndSegment) else None

    def forward(
        self,
        hidden: Float[Tensor, "tokens model"],
        context: AttentionContext,
        encoder_output: EncoderOutput | None = None,
        cache: LayerKVCache | SegmentMemory | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Attend to the sequence itself and, with a `SegmentMemory` as cache, to its memory."""
        assert encoder_output is None
        return self.attend(hidden, self.with_memory(hidden, context, cache), context)

    def with_memory(
        self, hidden: Float[Tensor, "tokens model"], context: AttentionContext, memory: object
    ) -> EncoderOutput:
        """Return the hidden states to attend to: the memory followed by these tokens."""
        if isinstance(memory, SegmentMemory):
            return EncoderOutput(*memory.extend(hidden, context.layout))
        return EncoderOutput(hidden, context.layout)

    def attend(
        self, hidden: Float[Tensor, "tokens model"], keys_from: EncoderOutput, context: AttentionContext
    ) -> Float[Tensor, "tokens model"]:
        """Attend with queries from `hidden` to keys and values from `keys_from`. XLNet calls it for both streams."""
        query = self.project.query_heads(hidden)
        key, value = self.project.key_value_heads(keys_from.hidden_states)
        return self.output(self._attend_packed(query, key, value, context, keys_from.layout))

    def score_bias(
        self,
        query: Float[Tensor, "rows heads query dim"],
        query_group: EqualLengthGroup,
        query_positions: Int[Tensor, "#rows query"],
        key_positions: Int[Tensor, "#rows key"],
        context: AttentionContext,
    ) -> tuple[Float[Tensor, "rows heads query dim"], Float[Tensor, "#rows heads query key"] | None]:
        """Return the query plus u, and the bias of distance and segment."""
        encoding = context.position
        assert isinstance(encoding, RelativeEncoding)
        biased_query, bias = self.relative(query, query_positions, key_positions, encoding)
        if self.segments is not None and encoding.segments is not None:
            query_segments = encoding.segments[query_group.tokens].view(query_group.count, -1)
            # The memory counts as segment 0.
            key_segments = nn.functional.pad(query_segments, (key_positions.shape[1] - query_segments.shape[1], 0))
            bias = bias + self.segments(query, query_segments, key_segments)
        return biased_query, bias


def build(design: config.Attention, model_dim: int) -> MultiHeadAttention:
    """Build the attention of a config."""
    return MultiHeadAttention(design, model_dim) if design.position is None else RelativeAttention(design, model_dim)
