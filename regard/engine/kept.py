"""Keys and values between steps, as the compiled parts know them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.native.kernels import move
from regard.native.pages import zeros
from regard.native.structures import Kept as Described
from regard.native.structures import Lengths, lengths_of
from regard.transformer.cache import Kept, Moves


class CompiledKept(Kept):
    """The same keys and values. The compiled parts copy rows, each as far as it is filled.

    Large rectangles take memory that far only: a text of a batch may be much longer than the others.
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
            self.key, self.value = (zeros((lines, like.shape[1], room, like.shape[2]), like.dtype) for _ in range(2))
        else:
            self._copy(torch.arange(len(filled), device="cpu"), Lengths(filled), lines, room)

    def _copy(self, rows: Int[Tensor, " copied"], lengths: Lengths, lines: int, room: int) -> None:
        """Move to other rectangles, where these rows are the first ones."""
        assert self.key is not None
        old, (_, heads, _, dim) = (self.key, self.value, self.described()), self.key.shape  # held until it is copied
        self.key, self.value = (zeros((lines, heads, room, dim), self.key.dtype) for _ in range(2))
        move(old[2], self.described(), heads, rows, torch.arange(len(rows), device="cpu"), lengths)

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
