"""Keys and values between steps, as the compiled parts know them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.native.kernels import move
from regard.native.pages import zeros
from regard.native.structures import Kept as Described
from regard.native.structures import Lengths, lengths_of
from regard.transformer.cache import Kept, Moves


class CompiledKept(Kept):
    """The same keys and values. The compiled parts copy rows, each as far as it is filled.

    So far they take memory, too: a text of a batch may be much longer than the others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._place: tuple[object, ...] = ()
        self._described = Described()

    def reorder(self, moves: Moves) -> None:
        """Keep some rows, in some order."""
        assert self.key is not None
        assert self.value is not None
        self.lengths = moves.lengths(self.lengths)
        lengths = lengths_of(moves.known, self.lengths)
        if moves.to is not None:
            for kept in (self.key, self.value):
                move(kept, moves.rows, moves.to, lengths)
            return
        shape, places = (len(moves.order), *self.key.shape[1:]), torch.arange(len(moves.order))
        old, (self.key, self.value) = (self.key, self.value), (self._zeros(self.key, shape) for _ in range(2))
        for kept, other in zip(old, (self.key, self.value), strict=True):
            move(kept, moves.rows, places, lengths, other)

    def _zeros(self, like: Tensor, shape: tuple[int, ...]) -> Float[Tensor, "lines heads room dim"]:
        return zeros(shape, like.dtype)

    def _copy(self, kept: Tensor, filled: tuple[int, ...], to: Tensor) -> None:
        rows = torch.arange(len(filled))
        move(kept, rows, rows, Lengths(filled), to)

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
