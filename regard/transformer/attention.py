"""Multi-head attention: softmax(Q·Kᵀ·scale + bias)·V.

Four concerns are separate: the attention mask (`mask.py`), the computation (`attention_kernel.py`), the projections to
queries, keys and values (`Projection`), and the KV cache (`cache.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.transformer import attention_sites, config
from regard.transformer.attention_kernel import AttentionKernel
from regard.transformer.batch_layout import BatchLayout, EqualLengthGroup
from regard.transformer.cache import LayerKVCache
from regard.transformer.mask import AttentionMask, Everything, Mask
from regard.transformer.position import RelativeEncoding, Rotation

Heads = Float[Tensor, "tokens heads dim"]
KeyHeads = Float[Tensor, "key_tokens key_heads dim"]
EVERYTHING = Everything()


@dataclass(frozen=True)
class EncoderOutput:
    """The output of an encoder, for cross-attention. Rows can be reordered, repeated and appended as in a `Cache`."""

    hidden: Float[Tensor, "tokens model"] | None
    """Hidden states after the last block, packed. None: released, a cache holds the keys and values made from them."""
    layout: BatchLayout
    """Layout of the source sequences."""
    copies: int = 1
    """Number of adjacent target rows that attend to each source: the beams of a source share its encoder output."""

    @property
    def hidden_states(self) -> Float[Tensor, "tokens model"]:
        """Hidden states of the encoder; raises ValueError if they were released."""
        if self.hidden is None:
            raise ValueError(
                "the encoder's hidden states were released and only cached keys and values are left: "
                "continue with the cache that holds them"
            )
        return self.hidden

    def without_hidden(self) -> EncoderOutput:
        """Return a copy without the hidden states, which releases their memory."""
        return replace(self, hidden=None)

    def reorder(self, order: Sequence[int]) -> EncoderOutput:
        """Return the rows in `order`, as `Cache.reorder` does."""
        hidden, layout = self.hidden, BatchLayout.of([self.layout.lengths[row] for row in order], self.layout.device)
        if hidden is not None:
            parts = torch.split(hidden, list(self.layout.lengths))
            hidden = torch.cat([parts[row] for row in order])
        return replace(self, hidden=hidden, layout=layout)

    def append_rows(self, other: EncoderOutput) -> EncoderOutput:
        """Return the rows of this output followed by those of another."""
        if self.copies != other.copies:
            raise ValueError(
                f"cannot append an encoder output with {other.copies} rows per source to one with {self.copies}"
            )
        layout = BatchLayout.of((*self.layout.lengths, *other.layout.lengths), self.layout.device)
        released = self.hidden is None or other.hidden is None
        hidden = None if released else torch.cat([self.hidden_states, other.hidden_states])
        return replace(self, hidden=hidden, layout=layout)

    def repeat_interleave(self, copies: int) -> EncoderOutput:
        """Return the same output for `copies` times as many target rows, without copying the hidden states."""
        return replace(self, copies=self.copies * copies)

    def query_layout(self, target: BatchLayout) -> BatchLayout:
        """Return a layout in which the target rows that attend to the same source form one sequence of queries."""
        if self.copies == 1:
            return target
        lengths = [sum(target.lengths[row : row + self.copies]) for row in range(0, target.batch_size, self.copies)]
        return BatchLayout.of(lengths, target.device)


@dataclass(frozen=True)
class AttentionContext:
    """Per-batch inputs of attention: layout, mask and positions. The blocks of a stack share all but the mask."""

    layout: BatchLayout
    """Layout of the queries."""
    mask: Mask
    """Which keys a query may attend to."""
    position: Rotation | RelativeEncoding | Float[Tensor, "#batch heads query key"] | None = None
    """Output of the stack's position module: a rotation (RoPE), relative position encodings, or an additive attention
    bias. The bias is computed for the longest sequence; shorter ones use its upper left corner."""
    layer: int = 0
    """In training, the index of the layer; layers that share a block have different ones."""
    memo: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    """Attention masks over the KV cache, computed once for all blocks: their caches have the same lengths."""

    def attention_mask(self, cache: LayerKVCache, query_group: EqualLengthGroup) -> AttentionMask:
        """Return the mask of a group of queries over the keys in the cache, memoised."""
        key = (id(self.mask), cache.lengths, query_group.rows.start)
        if key not in self.memo:
            evaluated = cache.attention_mask(self.mask, query_group.rows, self.layout.group_positions(query_group))
            self.memo[key] = self.mask, evaluated  # holds a reference to the mask, so that its id is not reused
        attention_mask: AttentionMask = self.memo[key][1]
        return attention_mask


class Projection(nn.Module):
    """Projects hidden states to queries, keys and values: one linear layer each, the output split into heads."""

    def __init__(self, design: config.Attention, model_dim: int) -> None:
        super().__init__()
        self.head_dim = design.head_dim
        self.query = nn.Linear(model_dim, design.heads * design.head_dim, design.bias)
        self.key = nn.Linear(model_dim, design.key_value_heads * design.head_dim, design.bias)
        self.value = nn.Linear(model_dim, design.key_value_heads * design.head_dim, design.bias)

    def forward(self, hidden: Float[Tensor, "tokens model"]) -> tuple[Heads, KeyHeads, KeyHeads]:
        """Project the same tokens to queries, keys and values (self-attention)."""
        return self.query_heads(hidden), *self.key_value_heads(hidden)

    def query_heads(self, hidden: Float[Tensor, "tokens model"]) -> Heads:
        """Project to queries."""
        return self.query(hidden).unflatten(-1, (-1, self.head_dim))

    def key_value_heads(self, hidden: Float[Tensor, "key_tokens model"]) -> tuple[KeyHeads, KeyHeads]:
        """Project to keys and values."""
        key, value = self.key(hidden), self.value(hidden)
        return key.unflatten(-1, (-1, self.head_dim)), value.unflatten(-1, (-1, self.head_dim))


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention or cross-attention, with the output projection `output`."""

    capture_sites = attention_sites.SITES

    def __init__(self, design: config.Attention, model_dim: int) -> None:
        super().__init__()
        if min(design.heads, design.key_value_heads, design.head_dim) < 1:
            raise ValueError(
                f"heads, key_value_heads and head_dim must be at least 1, "
                f"found {design.heads}, {design.key_value_heads} and {design.head_dim}"
            )
        if design.heads % design.key_value_heads:
            raise ValueError(f"heads ({design.heads}) must be a multiple of key_value_heads ({design.key_value_heads})")
        self.project = Projection(design, model_dim)
        self.kernel = AttentionKernel(design.scale, design.dropout)
        self.output = nn.Linear(design.heads * design.head_dim, model_dim, design.output_bias)

    def forward(
        self,
        hidden: Float[Tensor, "tokens model"],
        context: AttentionContext,
        encoder_output: EncoderOutput | None = None,
        cache: LayerKVCache | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Attend to the sequence itself, or to `encoder_output`; with a cache, also to the tokens of earlier steps."""
        if encoder_output is not None:
            return self.output(self._cross_attend(hidden, context, encoder_output, cache))
        query, key, value = self.project(hidden)
        if isinstance(context.position, Rotation):
            query, key = context.position.rotate(query), context.position.rotate(key)
        if cache is None:
            return self.output(self._attend_packed(query, key, value, context, context.layout))
        cache.append(key, value, context.layout)
        return self.output(self._attend_cached(query, context, cache))

    def capture_hooks(self, activations: Mapping[str, list[Tensor]]) -> Iterator[RemovableHandle]:
        """Register forward hooks that append the activations at these sites, one tensor per sequence."""
        return attention_sites.register_hooks(self, activations)

    def _cross_attend(
        self, hidden: Tensor, context: AttentionContext, encoder_output: EncoderOutput, cache: LayerKVCache | None
    ) -> Tensor:
        query = self.project.query_heads(hidden)
        context = AttentionContext(encoder_output.query_layout(context.layout), EVERYTHING, memo=context.memo)
        if cache is None:
            key, value = self.project.key_value_heads(encoder_output.hidden_states)
            return self._attend_packed(query, key, value, context, encoder_output.layout)
        if cache.empty:
            cache.append(*self.project.key_value_heads(encoder_output.hidden_states), encoder_output.layout)
        return self._attend_cached(query, context, cache)

    def score_bias(
        self,
        query: Float[Tensor, "rows heads query dim"],
        query_group: EqualLengthGroup,
        query_positions: Int[Tensor, "#rows query"],
        key_positions: Int[Tensor, "#rows key"],
        context: AttentionContext,
    ) -> tuple[Float[Tensor, "rows heads query dim"], Float[Tensor, "#rows heads query key"] | None]:
        """Return the query to use and the additive attention bias for queries and keys at these positions."""
        bias = context.position
        if not isinstance(bias, Tensor):
            return query, None
        return query, (bias if len(bias) == 1 else bias[query_group.rows])[
            :, :, : query_positions.shape[1], : key_positions.shape[1]
        ]

    def _attend_packed(
        self, query: Heads, key: KeyHeads, value: KeyHeads, context: AttentionContext, key_layout: BatchLayout
    ) -> Tensor:
        """Attend with packed keys and values, one equal-length group at a time: padding is never computed."""
        if query.device.type != "cpu" and not (context.layout.uniform and key_layout.uniform):
            return self._attend_padded(query, key, value, context, key_layout)
        pairs = list(context.layout.paired_groups(key_layout))
        queries = _split_groups(query, [query_group for query_group, _ in pairs])
        keys, values = (_split_groups(x, [key_group for _, key_group in pairs]) for x in (key, value))
        outputs = []
        for (query_group, key_group), q, k, v in zip(pairs, queries, keys, values, strict=True):
            query_positions = context.layout.group_positions(query_group)
            key_positions = query_positions
            if key_layout is not context.layout:
                key_positions = key_layout.group_positions(key_group)
            biased, bias = self.score_bias(q, query_group, query_positions, key_positions, context)
            attention_mask = context.mask.attention_mask(query_group.rows, query_positions, key_positions)
            outputs.append(_merge_heads(self.kernel(biased, k, v, attention_mask, bias)))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _attend_padded(
        self, query: Heads, key: KeyHeads, value: KeyHeads, context: AttentionContext, key_layout: BatchLayout
    ) -> Tensor:
        """Do the same in one kernel call, with padding: on a GPU one large call is faster than many small ones."""
        layout, cache = context.layout, LayerKVCache()
        cache.append(key, value, key_layout)
        all_rows = EqualLengthGroup(slice(0, layout.batch_size), slice(0, layout.num_tokens), layout.longest)
        # The padded keys start at column 0: make query positions relative to the first key of their sequence.
        key_starts = torch.tensor(key_layout.start_positions, device=query.device)[:, None]
        query_positions = layout.group_positions(all_rows) - key_starts
        keys, values, filled = cache.view(all_rows.rows)
        key_positions = torch.arange(filled, device=query.device)[None]
        padded = layout.pad(query).transpose(1, 2)
        padded, bias = self.score_bias(padded, all_rows, query_positions, key_positions, context)
        attention_mask = cache.attention_mask(context.mask, all_rows.rows, query_positions)
        output = self.kernel(padded, keys, values, attention_mask, bias)
        return layout.pack(output.transpose(1, 2)).flatten(1)

    def _attend_cached(self, query: Heads, context: AttentionContext, cache: LayerKVCache) -> Tensor:
        """Attend to the keys and values in a cache, whose rows are filled to different lengths."""
        outputs = []
        for group in context.layout.groups:
            keys, values, filled = cache.view(group.rows)
            query_positions, key_positions = context.layout.group_positions(group), context.layout.arange(filled)
            q = _unpack_heads(query[group.tokens], group.count)
            q, bias = self.score_bias(q, group, query_positions, key_positions, context)
            outputs.append(_merge_heads(self.kernel(q, keys, values, context.attention_mask(cache, group), bias)))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _split_groups(x: Heads, groups: Sequence[EqualLengthGroup]) -> list[Float[Tensor, "_ heads _ dim"]]:
    """Split packed heads into groups, each rows × heads × length × dim.

    One `torch.split` instead of a slice per group, so that the backward pass joins the gradients in one operation.
    """
    parts = torch.split(x, [group.count * group.length for group in groups])
    return [_unpack_heads(part, group.count) for part, group in zip(parts, groups, strict=True)]


def _unpack_heads(x: Heads, rows: int) -> Float[Tensor, "rows heads length dim"]:
    return x.view(rows, -1, *x.shape[1:]).transpose(1, 2)


def _merge_heads(x: Float[Tensor, "rows heads length dim"]) -> Float[Tensor, "tokens all"]:
    return x.transpose(1, 2).flatten(2).flatten(0, 1)
