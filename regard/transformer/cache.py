"""What is kept between steps, row by row.

When a decoder writes one token at a time, the keys and values of the tokens before do not change. A cache keeps them:
for each layer a rectangle with one line for each row of the batch, filled from the left up to that row's own length.

    row 0   k k k k k . . .     length 5         `drop`, `reorder` and `add` rows at any time: finished texts
    row 1   k k . . . . . .     length 2         leave the batch, waiting ones enter, beams are copied
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.transformer.batch_layout import Rows
from regard.transformer.mask import Causal, Mask, Visible


class Moves:
    """Which rows are kept, in which order, worked out once for all layers; a row may be named twice (two continuations
    of one beam)."""

    def __init__(self, order: Sequence[int], before: int, device: torch.device) -> None:
        self.order, self.device = order, device
        moved = [place for place, row in enumerate(order) if place != row]
        # Most rows stay where they are. If none is overwritten before it is copied, only what moves is touched.
        in_place = len(order) <= before and {order[place] for place in moved}.isdisjoint(moved)
        self.rows = [order[place] for place in moved] if in_place else list(order)
        """The rows that are copied,"""
        self.to = moved if in_place else None
        """and the places that they are copied to; None: all are."""
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def lengths(self, before: tuple[int, ...]) -> tuple[int, ...]:
        """The lengths of the rows that are kept."""
        if before not in self._known:
            self._known[before] = tuple([before[row] for row in self.order])
        return self._known[before]

    @cached_property
    def index(self) -> Int[Tensor, " copied"]:
        """The rows that are copied, for torch,"""
        return torch.tensor(self.rows, dtype=torch.long, device=self.device)

    @cached_property
    def places(self) -> Int[Tensor, " copied"]:
        """and the places that they are copied to."""
        return torch.tensor(self.to, dtype=torch.long, device=self.device)


class Kept:
    """The keys and values of one attention. Lines that rows have left stay, for rows that enter."""

    def __init__(self) -> None:
        self.lengths: tuple[int, ...] = ()
        self.key: Float[Tensor, "lines heads room dim"] | None = None
        self.value: Float[Tensor, "lines heads room dim"] | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is kept yet."""
        return self.key is None

    @property
    def longest(self) -> int:
        """The length of the longest row."""
        return max(self.lengths, default=0)

    @property
    def device(self) -> torch.device:
        """Where the keys and values are."""
        assert self.key is not None
        return self.key.device

    def append(
        self, key: Float[Tensor, "tokens heads dim"], value: Float[Tensor, "tokens heads dim"], rows: Rows
    ) -> None:
        """Put the keys and values of new tokens behind those of their rows."""
        before = self.extend(rows, key)
        assert self.key is not None
        assert self.value is not None
        _fill(self.key, key, rows, before, self.longest)
        _fill(self.value, value, rows, before, self.longest)

    def extend(self, rows: Rows, like: Float[Tensor, "tokens heads dim"]) -> tuple[int, ...]:
        """Make room for new tokens, with keys and values like this, behind those of their rows; how many there were."""
        before = self.lengths or (0,) * rows.batch
        if len(before) != rows.batch:
            raise ValueError(f"the cache holds {len(before)} rows, but the batch has {rows.batch}")
        self.lengths = rows.behind(before)
        longest = self.longest
        if self.key is None:
            self._make_room(before, rows.batch, longest, like)
        elif (room := self.key.shape[2]) < longest:  # more than is needed now; and the lines of rows that left, go
            self._make_room(before, rows.batch, max(longest, room + room // 2 + 16), self.key[:0, :, 0])
        return before

    def _make_room(self, filled: tuple[int, ...], lines: int, room: int, like: Float[Tensor, "_ heads dim"]) -> None:
        """Move to rectangles with so many lines and places; so much of each row is filled."""
        rows, longest = len(filled), max(filled, default=0)
        old, shape = (self.key, self.value), (lines, like.shape[1], room, like.shape[2])
        self.key, self.value = like.new_zeros(shape), like.new_zeros(shape)
        for kept, larger in zip(old, (self.key, self.value), strict=True):
            if kept is not None:
                larger[:rows, :, :longest] = kept[:rows, :, :longest]

    def view(self, rows: slice) -> tuple[Tensor, Tensor, int]:
        """The keys and values of these rows, and how many places the longest of them fills."""
        assert self.key is not None
        assert self.value is not None
        filled = max(self.lengths[rows])
        return self.key[rows, :, :filled], self.value[rows, :, :filled], filled

    def visible(self, mask: Mask, rows: slice, query: Int[Tensor, "#rows query"]) -> Visible:
        """What queries at these positions see of what is kept: what the mask allows, and only filled places."""
        lengths = self.lengths[rows]
        full = len(set(lengths)) == 1
        if full and isinstance(mask, Causal) and query.shape[1] == 1:
            return None  # the newest token sees all the others
        places = torch.arange(max(lengths), device=query.device)[None]
        seen = mask.visible(rows, query, places)
        if full:
            return seen
        filled = (places < torch.tensor(lengths, device=query.device)[:, None])[:, None, None, :]
        return seen & filled if isinstance(seen, Tensor) else filled

    def reorder(self, moves: Moves) -> None:
        """Keep some rows, in some order."""
        assert self.key is not None
        assert self.value is not None
        self.lengths = moves.lengths(self.lengths)
        if moves.to is None:
            self.key, self.value = self.key[moves.index], self.value[moves.index]
        elif moves.to:
            for kept in (self.key, self.value):
                filled = kept[:, :, : self.longest]
                filled.index_copy_(0, moves.places, filled.index_select(0, moves.index))

    def add(self, other: Kept) -> None:
        """Put the rows of another cache behind these."""
        if self.key is None or self.value is None or other.key is None or other.value is None:
            raise ValueError("rows can be added to a cache only after both have seen their first tokens")
        both, longest = len(self.lengths) + len(other.lengths), other.longest
        lines, _, room, _ = self.key.shape
        if lines < both or room < longest:
            self._make_room(self.lengths, max(lines, both), max(room, longest), self.key[:0, :, 0])
        self._put_behind(other)
        self.lengths += other.lengths

    def _put_behind(self, other: Kept) -> None:
        """Copy the rows of another cache to the lines behind these, where there is room for them."""
        assert self.key is not None
        assert self.value is not None
        here, count = len(self.lengths), len(other.lengths)
        if not count:
            return
        keys, values, filled = other.view(slice(0, count))
        self.key[here : here + count, :, :filled], self.value[here : here + count, :, :filled] = keys, values

    def take(self, rows: Sequence[int], into: Kept | None = None) -> Kept:
        """A copy of these rows alone, in a new cache or in an empty one."""
        taken = type(self)() if into is None else into
        if self.key is not None and self.value is not None:
            taken.lengths = tuple(self.lengths[row] for row in rows)
            index = torch.tensor(list(rows), dtype=torch.long, device=self.device)
            taken.key, taken.value = (x[index, :, : taken.longest] for x in (self.key, self.value))
        return taken


def _fill(kept: Tensor, new: Tensor, rows: Rows, before: tuple[int, ...], longest: int) -> None:
    """Put what is new in its places."""
    if rows.uniform and len(set(before)) == 1:
        kept[: rows.batch, :, before[0] : longest] = rows.pad(new).transpose(1, 2)
    else:
        starts = torch.tensor(before, device=new.device)[rows.row_of] if before != rows.starts else None
        kept[rows.row_of, :, rows.positions if starts is None else starts + rows.columns] = new.to(kept.dtype)


class Cache:
    """The keys and values of all layers of a decoder, of its own tokens and of the source that it attends to."""

    def __init__(self, layers: int) -> None:
        self.own = [Kept() for _ in range(layers)]
        self.source = [Kept() for _ in range(layers)]
        self._copies = 1

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens of each row the cache holds."""
        return self.own[0].lengths

    def reorder(self, order: Sequence[int]) -> None:
        """Keep these rows, in this order. Leave a row out and it is dropped; name it twice and it is copied.

        Where several rows look at one of the source (`spread`), they stay together.
        """
        texts = order if self._copies == 1 else _together(order, self._copies)
        self._reorder(self.own, order)
        self._reorder(self.source, texts)

    def spread(self, copies: int) -> None:
        """Copy every row so many times, side by side; what is kept of the source stays, and the copies share it."""
        order = [row for row in range(len(self.lengths)) for _ in range(copies)]
        self._reorder(self.own, order)
        self._copies *= copies

    def drop(self, rows: Sequence[int]) -> None:
        """Leave these rows out: their texts are finished."""
        gone = set(rows)
        self.reorder([row for row in range(len(self.lengths)) if row not in gone])

    def add(self, other: Cache, rows: Sequence[int] | None = None, copies: int = 1) -> None:
        """Put rows of another cache, or all, behind these, each so many times: new texts enter a running batch."""
        if rows is not None or copies > 1:
            other = other.take(range(len(other.lengths)) if rows is None else rows)
            other.spread(copies)
        if self._copies != other._copies:
            raise ValueError(f"rows in {other._copies} copies cannot stand behind rows in {self._copies}")
        for mine, others in zip([*self.own, *self.source], [*other.own, *other.source], strict=True):
            if not (mine.empty and others.empty):
                mine.add(others)

    def take(self, rows: Sequence[int]) -> Cache:
        """A copy of these rows alone, each with its own of the source."""
        if self._copies != 1:
            raise ValueError("rows that share those of the source cannot be taken alone")
        taken = type(self)(len(self.own))
        for mine, new in zip([*self.own, *self.source], [*taken.own, *taken.source], strict=True):
            mine.take(rows, new)
        return taken

    def _reorder(self, layers: Sequence[Kept], order: Sequence[int]) -> None:
        filled = [kept for kept in layers if not kept.empty]
        moves = Moves(order, len(filled[0].lengths), filled[0].device) if filled else None
        for kept in filled:
            assert moves is not None
            kept.reorder(moves)


def _together(order: Sequence[int], copies: int) -> list[int]:
    """The order of texts of which each has so many rows."""
    texts = [row // copies for row in order]
    if texts != [text for text in texts[::copies] for _ in range(copies)]:
        raise ValueError(f"{copies} rows share each row of the source: they stay together, found {list(order)[:12]}")
    return texts[::copies]


class Remembered:
    """What one layer has read before: the vectors that entered it, detached, up to `length` of them for each row."""

    def __init__(self, length: int | None) -> None:
        self.length = length
        self.rows: list[Float[Tensor, "remembered model"]] = []

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens of each row are remembered."""
        return tuple(len(row) for row in self.rows)

    def extend(self, hidden: Float[Tensor, "tokens model"], rows: Rows) -> tuple[Float[Tensor, "all model"], Rows]:
        """What is remembered of each row and behind it what is new; from now on, the end of that is remembered."""
        new = torch.split(hidden, list(rows.lengths))
        whole = [torch.cat(pair) for pair in zip(self.rows, new, strict=True)] if self.rows else list(new)
        self.rows = [row.detach()[-self.length :] if self.length else row.detach() for row in whole]
        return torch.cat(whole), Rows.of([len(row) for row in whole], hidden.device)


class Memory:
    """What a network with recurrence keeps between segments (Dai et al. 2019): hidden states, not keys and values.

    The gradient reaches the projection of keys and values through it, but not the past itself.
    """

    def __init__(self, layers: int, length: int | None) -> None:
        self.own = [Remembered(length) for _ in range(layers)]

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens of each row are remembered."""
        return self.own[0].lengths

    def fill(self, rows: int, like: Float[Tensor, "any model"]) -> None:
        """Remember zeros, as many as there is room for: how Transformer-XL begins a text."""
        for layer in self.own:
            layer.rows = [like.new_zeros(layer.length or 0, like.shape[1]) for _ in range(rows)]

    def reorder(self, order: Sequence[int]) -> None:
        """Keep these rows, in this order. Leave a row out and it is dropped; name it twice and it is copied."""
        for layer in self.own:
            layer.rows = [layer.rows[row] for row in order]

    def take(self, rows: Sequence[int]) -> Memory:
        """A copy of these rows alone."""
        taken = Memory(len(self.own), None)
        for layer, mine in zip(taken.own, self.own, strict=True):
            layer.length, layer.rows = mine.length, [mine.rows[row] for row in rows]
        return taken

    def spread(self, copies: int) -> None:
        """Copy every row so many times, side by side."""
        self.reorder([row for row in range(len(self.lengths)) for _ in range(copies)])

    def add(self, other: Memory, rows: Sequence[int] | None = None, copies: int = 1) -> None:
        """Put the rows of another memory, or these of them, behind these, each so many times."""
        for mine, others in zip(self.own, other.own, strict=True):
            chosen = others.rows if rows is None else [others.rows[row] for row in rows]
            mine.rows = mine.rows + [row for row in chosen for _ in range(copies)]
