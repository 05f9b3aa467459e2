"""Who may attend to whom.

A mask is a value: `Causal() & Window(size=128)`, `Causal() | Prefix(lengths)`. It knows nothing of attention; it
answers one question: may the query at this position see the key at that position?

                key 0 1 2 3        0 1 2 3        0 1 2 3          0 1 2 3
    Causal  query 0 x . . .      0 x x . .      0 x x . .        0 x . . .
                  1 x x . .      1 x x . .      1 x x x .        1 x x . .
                  2 x x x .      2 x x x .      2 . x x x        2 . . x .
                  3 x x x x      3 x x x x      3 . . x x        3 . . x x
                                 Causal |       Window(1)        Causal &
                                 Prefix([2])                     Documents([[0,0,1,1]])

Positions count the real tokens of a row from 0. `Padding` is the one mask that is never computed: the network takes
the tokens it marks out before the first layer, on whichever side they stand (`rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

QueryPositions = Int[Tensor, "#rows query"]
KeyPositions = Int[Tensor, "#rows key"]


@dataclass(frozen=True)
class Triangle:
    """The commonest dense mask, not written out: queries and keys are the same tokens, each sees up to itself."""


Visible = Bool[Tensor, "#rows #heads #query #key"] | Triangle | None
"""What a mask becomes for one batch: a tensor, the triangle, or None where everything is seen."""


class Mask:
    """Base of all masks: combines with & and |."""

    def visible(self, rows: slice, query: QueryPositions, key: KeyPositions) -> Visible:
        """What is seen when the queries at these positions look at the keys at those, in these rows of the batch."""
        if query is key and self._triangular():
            return Triangle()
        return self.dense(rows, query[:, None, :, None], key[:, None, None, :])

    def dense(
        self, rows: slice, query: Int[Tensor, "#rows 1 query 1"], key: Int[Tensor, "#rows 1 1 key"]
    ) -> Bool[Tensor, "#rows #heads #query #key"] | None:
        """The definition: True where the query may see the key; None where it always may."""
        raise NotImplementedError

    def compact(self, order: Int[Tensor, "batch length"]) -> Mask:
        """The same mask after the tokens of each row were put in this order (padding taken out)."""
        del order
        return self

    def check(self, batch: int, length: int) -> None:
        """Stop if the mask has a table that is too small for the batch."""

    def _triangular(self) -> bool:
        return False

    def __and__(self, other: Mask) -> Mask:
        if isinstance(self, Everything):
            return other
        return self if isinstance(other, Everything) else And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)


@dataclass(frozen=True)
class Everything(Mask):
    """Every query sees every key: an encoder."""

    def visible(self, rows: slice, query: QueryPositions, key: KeyPositions) -> None:
        del rows, query, key

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> None:
        del rows, query, key


@dataclass(frozen=True)
class Causal(Mask):
    """A query sees the keys up to its own position: a decoder."""

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del rows
        return key <= query

    def _triangular(self) -> bool:
        return True


@dataclass(frozen=True)
class Itself(Mask):
    """A query sees the key at its own position."""

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del rows
        return key == query


@dataclass(frozen=True)
class Window(Mask):
    """A query sees the keys at most `size` positions away, on both sides."""

    size: int

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del rows
        return (query - key).abs() <= self.size


@dataclass(frozen=True)
class Band(Mask):
    """A query sees itself and the `width` - 1 keys before it: the locally banded layers of sparse Transformers."""

    width: int

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del rows
        return (key <= query) & (query - key < self.width)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """A query sees the keys that are real tokens: `real` is False where a short row is filled up, on either side."""

    real: Bool[Tensor, "batch length"]

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del query
        real = self.real[rows]
        return real.gather(1, key.flatten(1).expand(len(real), -1))[:, None, None, :]


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Every query sees the first `lengths[row]` keys of its row: a prefix language model is `Causal() | Prefix(…)`."""

    lengths: Int[Tensor, " batch"]

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del query
        return key < self.lengths[rows, None, None, None]


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """A query sees the keys of its own document: `ids` numbers the document of each token.

    The definition. The quick way to keep documents apart is to give each a row of its own, side by side without
    padding (`Rows`).
    """

    ids: Int[Tensor, "batch length"]

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        ids = self.ids[rows]
        count, last = ids.shape[0], ids.shape[1] - 1
        # Keys beyond the table are unfilled places of a cache: no query has such a position, so Causal hides them.
        of_query = ids.gather(1, query.flatten(1).clamp(max=last).expand(count, -1))
        of_key = ids.gather(1, key.flatten(1).clamp(max=last).expand(count, -1))
        return of_query[:, None, :, None] == of_key[:, None, None, :]

    def compact(self, order: Tensor) -> Documents:
        return Documents(self.ids.gather(1, order))

    def check(self, batch: int, length: int) -> None:
        _check_table(self.ids.shape, batch, length)


@dataclass(frozen=True, eq=False)
class Explicit(Mask):
    """Any mask at all, written out: True where the query (second axis) may see the key (third)."""

    seen: Bool[Tensor, "batch length length"]

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        seen = self.seen[rows]
        row = torch.arange(seen.shape[0], device=seen.device)[:, None, None, None]
        last = seen.shape[1] - 1
        return seen[row, query.clamp(max=last), key.clamp(max=last)]

    def check(self, batch: int, length: int) -> None:
        _check_table(self.seen.shape, batch, length)

    def compact(self, order: Tensor) -> Explicit:
        row = torch.arange(len(order), device=order.device)[:, None, None]
        return Explicit(self.seen[row, order[:, :, None], order[:, None, :]])


@dataclass(frozen=True, eq=False)
class And(Mask):
    """Seen by both."""

    left: Mask
    right: Mask

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor | None:
        left, right = self.left.dense(rows, query, key), self.right.dense(rows, query, key)
        if left is None or right is None:
            return left if right is None else right
        return left & right

    def compact(self, order: Tensor) -> And:
        return And(self.left.compact(order), self.right.compact(order))

    def check(self, batch: int, length: int) -> None:
        self.left.check(batch, length)
        self.right.check(batch, length)


@dataclass(frozen=True, eq=False)
class Or(Mask):
    """Seen by either."""

    left: Mask
    right: Mask

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor | None:
        left, right = self.left.dense(rows, query, key), self.right.dense(rows, query, key)
        return None if left is None or right is None else left | right

    def compact(self, order: Tensor) -> Or:
        return Or(self.left.compact(order), self.right.compact(order))

    def check(self, batch: int, length: int) -> None:
        self.left.check(batch, length)
        self.right.check(batch, length)


def _check_table(shape: torch.Size, batch: int, length: int) -> None:
    if shape[0] != batch or shape[1] < length:
        raise ValueError(
            f"the mask has a table for {shape[0]} rows of {shape[1]} tokens, the batch has {batch} of up to {length}"
        )


def take_out_padding(mask: Mask) -> tuple[Bool[Tensor, "batch length"] | None, Mask]:
    """Split a mask into which tokens are real (None: all of them) and who may see whom among those."""
    if isinstance(mask, Padding):
        return mask.real, Everything()
    if not isinstance(mask, And | Or):
        return None, mask
    (one, left), (other, right) = take_out_padding(mask.left), take_out_padding(mask.right)
    if one is None and other is None:
        return None, mask
    if isinstance(mask, Or):
        raise ValueError("Padding combines with other masks by &, not by |: a token that is not real is never seen")
    if one is None or other is None:
        return (other if one is None else one), left & right
    return one & other, left & right
