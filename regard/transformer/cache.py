"""The KV cache of a decoder, and the segment memory of Transformer-XL and XLNet.

A decoder generates one token at a time, and the keys and values of earlier tokens do not change. The cache stores them:
for each layer a tensor with one row per sequence of the batch, filled from the left to the length of that sequence.

    row 0   k k k k k . . .     length 5         `reorder` and `append_rows` work at any time: finished sequences
    row 1   k k . . . . . .     length 2         leave the batch, queued ones enter, beams are copied
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.transformer.batch_layout import BatchLayout
from regard.transformer.mask import AttentionMask, Causal, Mask


class RowPermutation:
    """The rows of a cache to keep and their order, computed once for all layers.

    Rows may be dropped, or repeated (two continuations of one beam).
    """

    def __init__(self, order: Sequence[int], num_rows: int, device: torch.device) -> None:
        self.order, self.device = order, device
        moved = [index for index, row in enumerate(order) if index != row]
        # Most rows stay where they are. If no row is overwritten before it is copied, only the moved rows are copied.
        in_place = len(order) <= num_rows and {order[index] for index in moved}.isdisjoint(moved)
        self.copy_from = [order[index] for index in moved] if in_place else list(order)
        """Indices of the rows to copy."""
        self.copy_to = moved if in_place else None
        """Indices to copy them to; None: `copy_from` is the complete new order."""
        self._memo: dict[tuple[int, ...], tuple[int, ...]] = {}

    def lengths(self, old: tuple[int, ...]) -> tuple[int, ...]:
        """Return the lengths of the rows in the new order."""
        if old not in self._memo:
            self._memo[old] = tuple([old[row] for row in self.order])
        return self._memo[old]

    @cached_property
    def from_index(self) -> Int[Tensor, " copied"]:
        """`copy_from` as a tensor."""
        return torch.tensor(self.copy_from, dtype=torch.long, device=self.device)

    @cached_property
    def to_index(self) -> Int[Tensor, " copied"]:
        """`copy_to` as a tensor."""
        return torch.tensor(self.copy_to, dtype=torch.long, device=self.device)


class LayerKVCache:
    """Keys and values of one attention layer. Rows of dropped sequences stay allocated, for sequences added later."""

    def __init__(self) -> None:
        self.lengths: tuple[int, ...] = ()
        """Number of cached tokens of each sequence."""
        self.key: Float[Tensor, "rows heads capacity dim"] | None = None
        self.value: Float[Tensor, "rows heads capacity dim"] | None = None

    @property
    def empty(self) -> bool:
        """Whether the cache holds no tokens yet."""
        return self.key is None

    @property
    def longest(self) -> int:
        """Length of the longest sequence."""
        return max(self.lengths, default=0)

    @property
    def device(self) -> torch.device:
        """Device of the keys and values."""
        assert self.key is not None
        return self.key.device

    def append(
        self, key: Float[Tensor, "tokens heads dim"], value: Float[Tensor, "tokens heads dim"], layout: BatchLayout
    ) -> None:
        """Append the keys and values of new tokens to their sequences."""
        past_lengths = self.reserve(layout, key)
        assert self.key is not None
        assert self.value is not None
        _write_tokens(self.key, key, layout, past_lengths, self.longest)
        _write_tokens(self.value, value, layout, past_lengths, self.longest)

    def reserve(self, layout: BatchLayout, like: Float[Tensor, "tokens heads dim"]) -> tuple[int, ...]:
        """Reserve slots for the new tokens of each sequence, and return the lengths before.

        `like` is an example of the new keys: it determines the number of heads, the head size, dtype and device.
        """
        past_lengths = self.lengths or (0,) * layout.batch_size
        if len(past_lengths) != layout.batch_size:
            raise ValueError(f"the KV cache holds {len(past_lengths)} sequences, but the batch has {layout.batch_size}")
        self.lengths = layout.lengths_after(past_lengths)
        longest = self.longest
        if self.key is None:
            self._grow(past_lengths, layout.batch_size, longest, like)
        elif (capacity := self.key.shape[2]) < longest:
            # Grow by half, so that not every step reallocates. Rows of dropped sequences are freed.
            capacity = max(longest, capacity + capacity // 2 + 16)
            self._grow(past_lengths, layout.batch_size, capacity, self.key[:0, :, 0])
        return past_lengths

    def _grow(self, filled: tuple[int, ...], num_rows: int, capacity: int, like: Float[Tensor, "_ heads dim"]) -> None:
        """Move to tensors with `num_rows` rows and `capacity` slots; `filled` are the lengths to copy."""
        rows, longest = len(filled), max(filled, default=0)
        old, shape = (self.key, self.value), (num_rows, like.shape[1], capacity, like.shape[2])
        self.key, self.value = like.new_zeros(shape), like.new_zeros(shape)
        for smaller, larger in zip(old, (self.key, self.value), strict=True):
            if smaller is not None:
                larger[:rows, :, :longest] = smaller[:rows, :, :longest]

    def view(self, rows: slice) -> tuple[Tensor, Tensor, int]:
        """Return keys and values of these rows, and the number of slots that the longest of them fills."""
        assert self.key is not None
        assert self.value is not None
        filled = max(self.lengths[rows])
        return self.key[rows, :, :filled], self.value[rows, :, :filled], filled

    def attention_mask(self, mask: Mask, rows: slice, query: Int[Tensor, "#rows query"]) -> AttentionMask:
        """Evaluate a mask for queries at these positions over the cached keys; unfilled slots are masked."""
        lengths = self.lengths[rows]
        uniform = len(set(lengths)) == 1
        if uniform and isinstance(mask, Causal) and query.shape[1] == 1:
            return None  # the newest token attends to all others
        slots = torch.arange(max(lengths), device=query.device)[None]
        attention_mask = mask.attention_mask(rows, query, slots)
        if uniform:
            return attention_mask
        filled = (slots < torch.tensor(lengths, device=query.device)[:, None])[:, None, None, :]
        return attention_mask & filled if isinstance(attention_mask, Tensor) else filled

    def reorder(self, permutation: RowPermutation) -> None:
        """Apply a row permutation in place."""
        assert self.key is not None
        assert self.value is not None
        self.lengths = permutation.lengths(self.lengths)
        if permutation.copy_to is None:
            self.key, self.value = self.key[permutation.from_index], self.value[permutation.from_index]
        elif permutation.copy_to:
            for tensor in (self.key, self.value):
                filled = tensor[:, :, : self.longest]
                filled.index_copy_(0, permutation.to_index, filled.index_select(0, permutation.from_index))

    def append_rows(self, other: LayerKVCache) -> None:
        """Append the rows of another cache."""
        if self.key is None or self.value is None or other.key is None or other.value is None:
            raise ValueError("rows can be appended only when both caches hold at least one token")
        total_rows, longest = len(self.lengths) + len(other.lengths), other.longest
        num_rows, _, capacity, _ = self.key.shape
        if num_rows < total_rows or capacity < longest:
            self._grow(self.lengths, max(num_rows, total_rows), max(capacity, longest), self.key[:0, :, 0])
        self._copy_rows_from(other)
        self.lengths += other.lengths

    def _copy_rows_from(self, other: LayerKVCache) -> None:
        """Copy the rows of another cache to the allocated rows after this cache's own."""
        assert self.key is not None
        assert self.value is not None
        start, count = len(self.lengths), len(other.lengths)
        if not count:
            return
        keys, values, filled = other.view(slice(0, count))
        self.key[start : start + count, :, :filled], self.value[start : start + count, :, :filled] = keys, values

    def take(self, rows: Sequence[int], out: LayerKVCache | None = None) -> LayerKVCache:
        """Copy these rows to a new cache, or to the empty cache `out`."""
        selected = type(self)() if out is None else out
        if self.key is not None and self.value is not None:
            selected.lengths = tuple(self.lengths[row] for row in rows)
            index = torch.tensor(list(rows), dtype=torch.long, device=self.device)
            selected.key, selected.value = (x[index, :, : selected.longest] for x in (self.key, self.value))
        return selected


def _write_tokens(cached: Tensor, new: Tensor, layout: BatchLayout, past: tuple[int, ...], longest: int) -> None:
    """Write packed new keys or values to the slots after the past ones."""
    if layout.uniform and len(set(past)) == 1:
        cached[: layout.batch_size, :, past[0] : longest] = layout.pad(new).transpose(1, 2)
        return
    if past == layout.start_positions:
        slots = layout.positions
    else:
        slots = torch.tensor(past, device=new.device)[layout.row_indices] + layout.column_indices
    cached[layout.row_indices, :, slots] = new.to(cached.dtype)


class Cache:
    """Keys and values of all layers of a decoder: of self-attention and of cross-attention."""

    def __init__(self, num_layers: int) -> None:
        self.layers = [LayerKVCache() for _ in range(num_layers)]
        """Self-attention: keys and values of the decoder's own tokens."""
        self.cross_layers = [LayerKVCache() for _ in range(num_layers)]
        """Cross-attention: keys and values of the source tokens."""
        self._copies = 1
        """Number of adjacent rows that share each source."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of cached tokens of each sequence."""
        return self.layers[0].lengths

    def reorder(self, order: Sequence[int]) -> None:
        """Select rows in this order, in place. Rows not in `order` are dropped; rows that occur twice are copied.

        Rows that share a source (`repeat_interleave`) must stay adjacent.
        """
        sources = order if self._copies == 1 else _source_order(order, self._copies)
        self._reorder(self.layers, order)
        self._reorder(self.cross_layers, sources)

    def repeat_interleave(self, copies: int) -> None:
        """Repeat every row `copies` times. The repeated rows share the cached keys and values of their source."""
        order = [row for row in range(len(self.lengths)) for _ in range(copies)]
        self._reorder(self.layers, order)
        self._copies *= copies

    def append_rows(self, other: Cache, rows: Sequence[int] | None = None, copies: int = 1) -> None:
        """Append rows of another cache (default: all), each `copies` times: new sequences enter a running batch."""
        if rows is not None or copies > 1:
            other = other.take(range(len(other.lengths)) if rows is None else rows)
            other.repeat_interleave(copies)
        if self._copies != other._copies:
            raise ValueError(f"cannot append rows with {other._copies} rows per source to a cache with {self._copies}")
        layers, other_layers = [*self.layers, *self.cross_layers], [*other.layers, *other.cross_layers]
        for layer, other_layer in zip(layers, other_layers, strict=True):
            if not (layer.empty and other_layer.empty):
                layer.append_rows(other_layer)

    def take(self, rows: Sequence[int]) -> Cache:
        """Copy these rows, with their sources, to a new cache."""
        if self._copies != 1:
            raise ValueError(f"take() needs one row per source; this cache was expanded to {self._copies}")
        selected = type(self)(len(self.layers))
        layers, new_layers = [*self.layers, *self.cross_layers], [*selected.layers, *selected.cross_layers]
        for layer, new_layer in zip(layers, new_layers, strict=True):
            layer.take(rows, new_layer)
        return selected

    def _reorder(self, layers: Sequence[LayerKVCache], order: Sequence[int]) -> None:
        filled = [layer for layer in layers if not layer.empty]
        permutation = RowPermutation(order, len(filled[0].lengths), filled[0].device) if filled else None
        for layer in filled:
            assert permutation is not None
            layer.reorder(permutation)


def _source_order(order: Sequence[int], copies: int) -> list[int]:
    """Return the order of the sources, each of which is shared by `copies` adjacent rows."""
    sources = [row // copies for row in order]
    if sources != [source for source in sources[::copies] for _ in range(copies)]:
        raise ValueError(
            f"{copies} adjacent rows share each source and must stay adjacent, found the order {list(order)[:12]}"
        )
    return sources[::copies]


class SegmentMemory:
    """Segment memory of one layer: its past inputs, detached, up to `length` tokens of each sequence (None: all)."""

    def __init__(self, length: int | None) -> None:
        self.length = length
        self.hidden: list[Float[Tensor, "memory model"]] = []
        """Hidden states of each sequence."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of tokens of each sequence in the memory."""
        return tuple(len(row) for row in self.hidden)

    def extend(
        self, hidden: Float[Tensor, "tokens model"], layout: BatchLayout
    ) -> tuple[Float[Tensor, "all model"], BatchLayout]:
        """Return the memory of each sequence followed by its new hidden states, and store the end of that as memory."""
        new = torch.split(hidden, list(layout.lengths))
        full = [torch.cat(pair) for pair in zip(self.hidden, new, strict=True)] if self.hidden else list(new)
        self.hidden = [row.detach()[-self.length :] if self.length else row.detach() for row in full]
        return torch.cat(full), BatchLayout.of([len(row) for row in full], hidden.device)


class Memory:
    """The segment memory of a network with recurrence (Dai et al. 2019): hidden states, not keys and values.

    The key and value projections get gradients from the memory. The hidden states in it are detached.
    """

    def __init__(self, num_layers: int, length: int | None) -> None:
        self.layers = [SegmentMemory(length) for _ in range(num_layers)]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of tokens of each sequence in the memory."""
        return self.layers[0].lengths

    def fill_with_zeros(self, rows: int, like: Float[Tensor, "any model"]) -> None:
        """Fill the memory with zeros to its full length: the initial memory of Transformer-XL."""
        for layer in self.layers:
            layer.hidden = [like.new_zeros(layer.length or 0, like.shape[1]) for _ in range(rows)]

    def reorder(self, order: Sequence[int]) -> None:
        """Select rows in this order, in place. Rows not in `order` are dropped; rows that occur twice are copied."""
        for layer in self.layers:
            layer.hidden = [layer.hidden[row] for row in order]

    def take(self, rows: Sequence[int]) -> Memory:
        """Copy these rows to a new memory."""
        selected = Memory(len(self.layers), None)
        for new_layer, layer in zip(selected.layers, self.layers, strict=True):
            new_layer.length, new_layer.hidden = layer.length, [layer.hidden[row] for row in rows]
        return selected

    def repeat_interleave(self, copies: int) -> None:
        """Repeat every row `copies` times."""
        self.reorder([row for row in range(len(self.lengths)) for _ in range(copies)])

    def append_rows(self, other: Memory, rows: Sequence[int] | None = None, copies: int = 1) -> None:
        """Append rows of another memory (default: all), each `copies` times."""
        for layer, other_layer in zip(self.layers, other.layers, strict=True):
            selected = other_layer.hidden if rows is None else [other_layer.hidden[row] for row in rows]
            layer.hidden = layer.hidden + [row for row in selected for _ in range(copies)]
