"""Attention by the compiled parts: row by row, with no padding, no masks written out, and nothing copied.

At INT8 the keys and values of a decoder are bfloat16, kept or not: to fetch them takes more time than to multiply them,
and what they lose is less than what the bytes of the matrices lose that they come from.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from regard.native import ops
from regard.native.ctypes_structs import lengths_of
from regard.transformer.attention import Heads, KeyHeads, Looking, MultiHeadAttention, Source
from regard.transformer.batch_layout import Rows
from regard.transformer.cache import Kept
from regard.transformer.mask import Causal, Everything
from regard.transformer.position import Rotation

KNOWN_MASKS = (Causal, Everything)
"""The masks that the compiled parts know."""


class QuickAttention(MultiHeadAttention):
    """The same attention. What the compiled parts do not know (masks but the two common ones, somebody who watches) is
    left to torch."""

    def __init__(self, plain: MultiHeadAttention, numbers: torch.dtype = torch.float32) -> None:
        nn.Module.__init__(self)  # its parts are those of the plain one: none is made anew
        self.project, self.kernel, self.output = plain.project, plain.kernel, plain.output
        self.numbers = numbers
        """What keys and values are."""

    def forward(
        self, hidden: Tensor, looking: Looking, source: Source | None = None, kept: Kept | None = None
    ) -> Tensor:
        """Attend: to the row itself, or to `source`; with `kept`, also to what earlier steps left there."""
        if source is not None or kept is None:
            return super().forward(hidden, looking, source, kept)
        query, key, value = self.project(hidden)
        if isinstance(looking.position, Rotation):
            query, key = looking.position.turn(query), looking.position.turn(key)
        key, value = key.to(self.numbers), value.to(self.numbers)
        before = kept.extend(looking.rows, key)
        assert kept.key is not None
        assert kept.value is not None
        new, old = lengths_of(looking.rows.lengths), lengths_of(before)
        ops.keep(kept.key, key, new, old)
        ops.keep(kept.value, value, new, old)
        return self.output(self._with_kept(query, looking, kept))

    def _rowwise(self, query: Heads, key: KeyHeads, value: KeyHeads, looking: Looking, key_rows: Rows) -> Tensor:
        if isinstance(looking.mask, Causal):
            key, value = key.to(self.numbers), value.to(self.numbers)
        if not self.knows(looking):
            return super()._rowwise(query, key.to(query.dtype), value.to(query.dtype), looking, key_rows)
        return self._attend(query, key, value, looking, key_rows.lengths)

    def _with_kept(self, query: Heads, looking: Looking, kept: Kept) -> Tensor:
        if not self.knows(looking):
            return super()._with_kept(query, looking, _like(query, kept))
        assert kept.key is not None
        assert kept.value is not None
        return self._attend(query, kept.key, kept.value, looking, kept.lengths)

    def _attend(self, query: Heads, key: Tensor, value: Tensor, looking: Looking, keys: tuple[int, ...]) -> Tensor:
        bias = looking.position if isinstance(looking.position, Tensor) else None
        asking, answering = lengths_of(looking.rows.lengths), lengths_of(keys)
        causal = isinstance(looking.mask, Causal)
        return ops.attend(query, key, value, asking, answering, self.kernel.scale, causal, bias)

    def knows(self, looking: Looking) -> bool:
        """Whether the compiled parts can do it."""
        return type(looking.mask) in KNOWN_MASKS and not self.kernel._forward_hooks


def _like(query: Tensor, kept: Kept) -> Kept:
    """What is kept, in numbers like those of a query."""
    assert kept.key is not None
    assert kept.value is not None
    found = copy.copy(kept)
    found.key, found.value = kept.key.to(query.dtype), kept.value.to(query.dtype)
    return found


def fits(plain: nn.Module) -> bool:
    """Whether this is an attention that the compiled parts know."""
    return type(plain) is MultiHeadAttention
