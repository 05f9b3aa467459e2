"""Keys and values between steps, as the compiled parts know them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.native.arena import PAGE, PAGES, SMALL, sparse
from regard.native.ctypes_structs import Kept as Described
from regard.native.ops import Alike, clear, move
from regard.transformer.batch_layout import Rows
from regard.transformer.cache import Cache, Kept, Moves

Rectangle = Float[Tensor, "lines heads room dim"]
Table = ctypes.Array[Described]
FEW, ROOM = 32, 256
"""So many places gets a rectangle that has to grow, if no more are asked for; and so many at least, if more are."""


class CompiledKept(Kept):
    """The same keys and values. The compiled parts copy rows, each as far as it is filled.

    Large rectangles take memory that far only. So one that has to grow gets more places than most texts will fill: what
    is empty costs nothing, a text may be much longer than the others, and nothing is copied again for every few tokens.
    But pages that are taken one by one have to be cleared one by one, so sentences get a small rectangle first.
    """

    def __init__(self, at: Described | None = None) -> None:
        super().__init__()
        self.at = Described() if at is None else at
        """Where they are."""

    def reorder(self, moves: Moves) -> None:
        """Keep some rows, in some order."""
        self.lengths = moves.lengths(self.lengths)
        if moves.to is None:
            self._copy(moves.order, self.lengths, len(moves.order))
        else:
            move(1, self.at, self.at, moves.rows, moves.to, self.lengths)

    def take(self, rows: Sequence[int], into: Kept | None = None) -> Kept:
        """A copy of these rows alone, in a new cache or in an empty one."""
        taken = CompiledKept() if into is None else into
        assert isinstance(taken, CompiledKept)
        if self.key is not None:
            taken.lengths = tuple(self.lengths[row] for row in rows)
            taken._begin((len(rows), self.key.shape[1], taken.longest, self.key.shape[3]), self.key.dtype)
            move(1, self.at, taken.at, rows, range(len(rows)), taken.lengths)
        return taken

    @property
    def room(self) -> int:
        """How many places a row has."""
        return 0 if self.key is None else self.key.shape[2]

    def view(self, rows: slice) -> tuple[Tensor, Tensor, int]:
        """The keys and values of these rows, and how many places the longest of them fills.

        Behind shorter rows anything may stand. The compiled parts do not look at it; torch multiplies it by 0, so here
        it has to be numbers.
        """
        keys, values, filled = super().view(rows)
        with torch.inference_mode():  # where they may have been made
            for row, length in enumerate(self.lengths[rows]):
                if length < filled:
                    keys[row, :, length:], values[row, :, length:] = 0, 0
        return keys, values, filled

    def pages(self, length: int) -> int:
        """How many pages of each head a row of this length has written to, in a large rectangle."""
        assert self.key is not None
        return -(-length * self.key.stride(2) * self.key.element_size() // PAGE)

    def make_room(self, rows: int, longest: int) -> None:
        """Make room for so many rows of such a length, if there is none."""
        assert self.key is not None
        lines, _, room, _ = self.key.shape
        if lines < rows or room < longest:
            self._make_room(self.lengths, max(lines, rows), max(room, longest), self.key[:0, :, 0])

    def _make_room(self, filled: tuple[int, ...], lines: int, room: int, like: Float[Tensor, "_ heads dim"]) -> None:
        if self.key is None:
            self._begin((lines, like.shape[1], room, like.shape[2]), like.dtype)
        else:
            self._copy(range(len(filled)), filled, lines, FEW if room <= FEW else max(room, ROOM))

    def _put_behind(self, other: Kept) -> None:
        assert self.key is not None
        assert other.key is not None
        if isinstance(other, CompiledKept) and other.key.dtype == self.key.dtype:
            rows, here = range(len(other.lengths)), len(self.lengths)
            move(1, other.at, self.at, rows, range(here, here + len(rows)), self.lengths + other.lengths)
        else:  # it was begun by other parts
            super()._put_behind(other)

    def _copy(self, rows: Sequence[int], lengths: tuple[int, ...], lines: int, room: int = 0) -> None:
        """Move to other rectangles, where these rows are the first ones."""
        assert self.key is not None
        old = self.key, self.value, Described.from_buffer_copy(self.at)  # held until it is copied
        _, heads, places, dim = self.key.shape
        self._begin((lines, heads, room or places, dim), self.key.dtype)
        move(1, old[2], self.at, rows, range(len(rows)), lengths)

    def _begin(self, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        """New rectangles. From 256 places on they have pages of their own, which are there when they are filled."""
        small = PAGES if shape[2] >= ROOM else SMALL
        self.key, self.value = (sparse(shape, dtype, small) for _ in range(2))
        here = described(self.key, self.value)
        ctypes.memmove(ctypes.addressof(self.at), ctypes.addressof(here), ctypes.sizeof(here))


def described(key: Rectangle, value: Rectangle) -> Described:
    """Where keys and values are."""
    row, head, place, _ = key.stride()
    return Described(key.data_ptr(), value.data_ptr(), key.dtype == torch.bfloat16, key.shape[1], row, head, place)


class CompiledCache(Cache):
    """The keys and values of all layers. What is done to all of them is done in one call.

    When rows leave, lines that have more pages than they need give them back: else a cache would come to hold as much
    as if all rows were as long as the longest that each line ever had.
    """

    own: list[CompiledKept]  # type: ignore[assignment]
    source: list[CompiledKept]  # type: ignore[assignment]

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        self.own_at, self.source_at = (Described * layers)(), (Described * layers)()
        """Where those of each layer are, the layers side by side."""
        self.own, self.source = ([CompiledKept(one) for one in table] for table in (self.own_at, self.source_at))
        self.alike = Alike()
        """How far rows are alike: beams of one text are up to where they parted."""

    def extend(self, rows: Rows, likes: Sequence[Float[Tensor, "_ heads dim"]]) -> tuple[int, ...]:
        """Make room in all layers for new tokens behind those of their rows; how many there were."""
        first, *others = self.own
        before = first.extend(rows, likes[0])
        lengths, longest = first.lengths, first.longest
        for kept, like in zip(others, likes[1:], strict=True):
            if kept.room < longest:
                kept.extend(rows, like)
            kept.lengths = lengths
        return before

    def add(self, other: Cache, rows: Sequence[int] | None = None, copies: int = 1) -> None:
        """Put rows of another cache behind these."""
        known = isinstance(other, CompiledCache) and _numbers(other) == _numbers(self)
        if not known or (self._copies, other._copies) != (copies, 1):
            super().add(other, rows, copies)
            return
        assert isinstance(other, CompiledCache)
        chosen = range(len(other.lengths)) if rows is None else rows
        here, spread = len(self.lengths), [row for row in chosen for _ in range(copies)]
        order, lengths = [*range(here), *(here + row for row in spread)], self.lengths + other.lengths
        alike = self._known().then(order, lengths) if copies > 1 else self.alike
        _put_behind(self.own, self.own_at, other.own, other.own_at, spread)
        _put_behind(self.source, self.source_at, other.source, other.source_at, chosen)
        self.alike = alike

    def _reorder(self, layers: Sequence[Kept], order: Sequence[int]) -> None:
        filled = [kept for kept in layers if isinstance(kept, CompiledKept) and not kept.empty]
        if not filled or list(order) == list(range(len(filled[0].lengths))):
            return
        before, beams = filled[0].lengths, layers is self.own and self._copies > 1
        moves = Moves(order, len(before), filled[0].device)
        if beams:
            alike = self._known()
            self.alike = alike.then(order, before)  # which stops at rows that are not there
        if moves.to is None:  # to other rectangles, one after the other: each is given back before the next is made
            for kept in filled:
                kept.reorder(moves)
            return
        lengths = moves.lengths(before)
        for kept in filled:
            kept.lengths = lengths
        table = self.own_at if layers is self.own else self.source_at
        pages, large = filled[0].pages, filled[0].room >= ROOM
        fewer = large and len(order) < len(before)
        if fewer:  # a row that is copied may stand in one of the last lines: those are cleared when it has left
            clear(len(layers), table, [line for line in moves.to if pages(before[line]) > pages(lengths[line])])
        if moves.to:
            there = alike.of(moves.to, moves.rows) if beams and not fewer else ()  # nothing, in lines that were cleared
            move(len(layers), table, table, moves.rows, moves.to, lengths, there)
        if fewer:
            clear(len(layers), table, [line for line in range(len(order), len(before)) if pages(before[line]) > 1])

    def spread(self, copies: int) -> None:
        """Copy every row so many times, side by side."""
        before, alone = self.lengths, self._copies == 1
        super().spread(copies)
        self.alike = Alike(len(self.lengths), self._copies)
        if alone:
            self.alike = self.alike.then([row for row in range(len(before)) for _ in range(copies)], before)

    def _known(self) -> Alike:
        """How far rows are alike. Where others came in another way, nothing is known."""
        count, each = len(self.lengths), self._copies
        return self.alike if (self.alike.count, self.alike.each) == (count, each) else Alike(count, each)


def _numbers(cache: CompiledCache) -> list[torch.dtype | None]:
    return [None if kept.key is None else kept.key.dtype for kept in (*cache.own, *cache.source)]


def _put_behind(
    mine: Sequence[CompiledKept], at: Table, others: Sequence[CompiledKept], from_at: Table, rows: Sequence[int]
) -> None:
    """Copy rows of all layers behind those of others."""
    pairs = [pair for pair in zip(mine, others, strict=True) if not pair[0].empty]
    if not pairs or not rows:
        return
    before, new = pairs[0][0].lengths, tuple(pairs[0][1].lengths[row] for row in rows)
    here, lengths = len(before), before + new
    for kept, _ in pairs:
        kept.make_room(len(lengths), max(new))
        kept.lengths = lengths
    move(len(mine), from_at, at, rows, range(here, len(lengths)), lengths)
