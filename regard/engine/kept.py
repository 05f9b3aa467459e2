"""Keys and values between steps, as the compiled parts know them."""

from __future__ import annotations

import torch

from regard.native.kernels import move
from regard.native.structures import Kept as Described
from regard.native.structures import lengths_of
from regard.transformer.cache import Kept, Moves


class CompiledKept(Kept):
    """The same keys and values. Rows change places by the compiled parts, each as far as it is filled."""

    def __init__(self) -> None:
        super().__init__()
        self._place: tuple[object, ...] = ()
        self._described = Described()

    def reorder(self, moves: Moves) -> None:
        """Keep some rows, in some order."""
        if moves.to is None:
            super().reorder(moves)
            return
        assert self.key is not None
        assert self.value is not None
        self.lengths = moves.lengths(self.lengths)
        for kept in (self.key, self.value):
            move(kept, moves.rows, moves.to, lengths_of(moves.known, self.lengths))

    def described(self, before: int | None, keys: int) -> Described:
        """Where they are, with the addresses of how many there were of each row, and how many there are now."""
        assert self.key is not None
        assert self.value is not None
        place = (self.key.data_ptr(), self.value.data_ptr(), self.key.stride())
        if place != self._place:
            self._place, self._described = place, described(self)
        self._described.before, self._described.keys = before, keys
        return self._described


def described(kept: Kept) -> Described:
    """Where keys and values are."""
    assert kept.key is not None
    assert kept.value is not None
    row, head, place, _ = kept.key.stride()
    half = kept.key.dtype == torch.bfloat16
    return Described(kept.key.data_ptr(), kept.value.data_ptr(), half, row, head, place)
