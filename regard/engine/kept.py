"""Keys and values between steps, as the compiled parts know them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.native.kernels import move
from regard.native.pages import PAGES, SMALL, zeros
from regard.native.structures import Kept as Described
from regard.native.structures import Lengths, lengths_of
from regard.transformer.cache import Kept, Moves

ROOM = 256
"""So many places at least has a rectangle that had to grow."""


class CompiledKept(Kept):
    """The same keys and values. The compiled parts copy rows, each as far as it is filled.

    Rectangles take memory that far only. So one that has to grow gets more places than most texts will fill: what is
    empty costs nothing, a text may be much longer than the others, and nothing is copied again for every few tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self._place: tuple[object, ...] = ()
        self._described = Described()

    def reorder(self, moves: Moves) -> None:
        """Keep some rows, in some order."""
        assert self.key is not None
        self.lengths = moves.lengths(self.lengths)
        lengths = lengths_of(moves.known, self.lengths)
        if moves.to is None:
            self._copy(moves.rows, lengths, len(moves.order), self.key.shape[2])
        else:
            here = self.described()
            move(here, here, self.key.shape[1], moves.rows, moves.to, lengths)

    def _make_room(self, filled: tuple[int, ...], lines: int, room: int, like: Float[Tensor, "_ heads dim"]) -> None:
        if self.key is None:
            self._begin((lines, like.shape[1], room, like.shape[2]), like.dtype)
        else:
            self._copy(torch.arange(len(filled), device="cpu"), Lengths(filled), lines, max(room, ROOM))

    def _put_behind(self, other: Kept) -> None:
        assert self.key is not None
        assert other.key is not None
        if other.key.dtype == self.key.dtype:
            rows, lengths = torch.arange(len(other.lengths), device="cpu"), Lengths(self.lengths + other.lengths)
            move(described(other), self.described(), self.key.shape[1], rows, rows + len(self.lengths), lengths)
        else:  # one of them was begun by other parts
            super()._put_behind(other)

    def _copy(self, rows: Int[Tensor, " copied"], lengths: Lengths, lines: int, room: int) -> None:
        """Move to other rectangles, where these rows are the first ones."""
        assert self.key is not None
        old, (_, heads, _, dim) = (self.key, self.value, self.described()), self.key.shape  # held until it is copied
        self._begin((lines, heads, room, dim), self.key.dtype)
        move(old[2], self.described(), heads, rows, torch.arange(len(rows), device="cpu"), lengths)

    def _begin(self, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        """New rectangles. From 256 places on they have pages of their own, which are there when they are filled."""
        small = PAGES if shape[2] >= ROOM else SMALL
        self.key, self.value = (zeros(shape, dtype, small) for _ in range(2))

    def described(self) -> Described:
        """Where they are."""
        assert self.key is not None
        assert self.value is not None
        place = (self.key.data_ptr(), self.value.data_ptr(), self.key.dtype, self.key.stride())
        if place != self._place:
            self._place, self._described = place, described(self)
        return self._described


def described(kept: Kept) -> Described:
    """Where keys and values are."""
    assert kept.key is not None
    assert kept.value is not None
    row, head, place, _ = kept.key.stride()
    half = kept.key.dtype == torch.bfloat16
    return Described(kept.key.data_ptr(), kept.value.data_ptr(), half, row, head, place)
