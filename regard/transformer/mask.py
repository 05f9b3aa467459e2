"""Attention masks: which keys a query may attend to.

A mask is a value: `Causal() & Window(size=128)`, `Causal() | Prefix(lengths)`. It is independent of the attention that
uses it, and defines for each query position and key position whether the query may attend to the key.

                key 0 1 2 3        0 1 2 3        0 1 2 3          0 1 2 3
    Causal  query 0 x . . .      0 x x . .      0 x x . .        0 x . . .
                  1 x x . .      1 x x . .      1 x x x .        1 x x . .
                  2 x x x .      2 x x x .      2 . x x x        2 . . x .
                  3 x x x x      3 x x x x      3 . . x x        3 . . x x
                                 Causal |       Window(1)        Causal &
                                 Prefix([2])                     Documents([[0,0,1,1]])

Positions count the real tokens of a sequence from 0. `Padding` is not evaluated in attention: the network removes
padding, on either side, before the first layer (`packing.py`).
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
    """The full causal mask, not materialised: queries and keys are the same tokens (`is_causal` of torch)."""


AttentionMask = Bool[Tensor, "#rows #heads #query #key"] | Triangle | None
"""A mask evaluated for one batch: a tensor, the triangle, or None where every query attends to every key."""


class Mask:
    """Base class of all masks; masks combine with & and |."""

    def attention_mask(self, rows: slice, query: QueryPositions, key: KeyPositions) -> AttentionMask:
        """Evaluate the mask for queries and keys at these positions, in these rows of the batch."""
        if query is key and self._triangular():
            return Triangle()
        return self.dense(rows, query[:, None, :, None], key[:, None, None, :])

    def dense(
        self, rows: slice, query: Int[Tensor, "#rows 1 query 1"], key: Int[Tensor, "#rows 1 1 key"]
    ) -> Bool[Tensor, "#rows #heads #query #key"] | None:
        """Compute the mask by its definition: True where the query may attend to the key; None if it always may."""
        raise NotImplementedError

    def compact(self, order: Int[Tensor, "batch length"]) -> Mask:
        """Return the same mask for tokens permuted by `order` in each row (real tokens first, padding last)."""
        del order
        return self

    def check(self, batch: int, length: int) -> None:
        """Raise ValueError if a tensor of the mask is too small for the batch."""

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
    """Every query attends to every key: an encoder."""

    def attention_mask(self, rows: slice, query: QueryPositions, key: KeyPositions) -> None:
        del rows, query, key

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> None:
        del rows, query, key


@dataclass(frozen=True)
class Causal(Mask):
    """A query attends to the keys up to its own position: a decoder."""

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del rows
        return key <= query

    def _triangular(self) -> bool:
        return True


@dataclass(frozen=True)
class Diagonal(Mask):
    """A query attends only to the key at its own position."""

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del rows
        return key == query


@dataclass(frozen=True)
class Window(Mask):
    """A query attends to the keys at most `size` positions away, on both sides."""

    size: int

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del rows
        return (query - key).abs() <= self.size


@dataclass(frozen=True)
class Band(Mask):
    """A query attends to itself and the `width` - 1 keys before it: locally banded layers of sparse Transformers."""

    width: int

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del rows
        return (key <= query) & (query - key < self.width)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """A query attends to real tokens: `real` is False at padding, on either side."""

    real: Bool[Tensor, "batch length"]

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del query
        real = self.real[rows]
        return real.gather(1, key.flatten(1).expand(len(real), -1))[:, None, None, :]


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Every query attends to the first `lengths[row]` keys of its row: a prefix LM is `Causal() | Prefix(…)`."""

    lengths: Int[Tensor, " batch"]

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        del query
        return key < self.lengths[rows, None, None, None]


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """A query attends to the keys of its own document: `ids` numbers the document of each token.

    It is faster to pass each document as a separate sequence of a packed batch (`BatchLayout`), which needs no mask.
    """

    ids: Int[Tensor, "batch length"]

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        ids = self.ids[rows]
        count, last = ids.shape[0], ids.shape[1] - 1
        # Keys beyond `ids` are unfilled slots of a cache: no query has such a position, so Causal masks them.
        query_documents = ids.gather(1, query.flatten(1).clamp(max=last).expand(count, -1))
        key_documents = ids.gather(1, key.flatten(1).clamp(max=last).expand(count, -1))
        return query_documents[:, None, :, None] == key_documents[:, None, None, :]

    def compact(self, order: Tensor) -> Documents:
        return Documents(self.ids.gather(1, order))

    def check(self, batch: int, length: int) -> None:
        _check_shape(self.ids.shape, batch, length)


@dataclass(frozen=True, eq=False)
class Explicit(Mask):
    """An arbitrary mask as a tensor: True where the query (second axis) may attend to the key (third axis)."""

    allowed: Bool[Tensor, "batch length length"]

    def dense(self, rows: slice, query: Tensor, key: Tensor) -> Tensor:
        allowed = self.allowed[rows]
        row = torch.arange(allowed.shape[0], device=allowed.device)[:, None, None, None]
        last = allowed.shape[1] - 1
        return allowed[row, query.clamp(max=last), key.clamp(max=last)]

    def check(self, batch: int, length: int) -> None:
        _check_shape(self.allowed.shape, batch, length)

    def compact(self, order: Tensor) -> Explicit:
        row = torch.arange(len(order), device=order.device)[:, None, None]
        return Explicit(self.allowed[row, order[:, :, None], order[:, None, :]])


@dataclass(frozen=True, eq=False)
class And(Mask):
    """A query attends to the keys that both masks allow."""

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
    """A query attends to the keys that at least one of the masks allows."""

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


def _check_shape(shape: torch.Size, batch: int, length: int) -> None:
    if shape[0] != batch or shape[1] < length:
        raise ValueError(
            f"the mask covers {shape[0]} sequences of {shape[1]} tokens, but the batch has {batch} of up to {length}"
        )


def split_padding(mask: Mask) -> tuple[Bool[Tensor, "batch length"] | None, Mask]:
    """Split a mask into the padding mask (True at real tokens, None if all are) and the remaining mask."""
    if isinstance(mask, Padding):
        return mask.real, Everything()
    if not isinstance(mask, And | Or):
        return None, mask
    (left_real, left), (right_real, right) = split_padding(mask.left), split_padding(mask.right)
    if left_real is None and right_real is None:
        return None, mask
    if isinstance(mask, Or):
        raise ValueError("combine Padding with & only, not |: padding is never attended to")
    if left_real is None or right_real is None:
        return (right_real if left_real is None else left_real), left & right
    return left_real & right_real, left & right
