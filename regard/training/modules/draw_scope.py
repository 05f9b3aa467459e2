"""The sequences that a module is computing, so that its random draws can depend on them.

A module such as dropout sees hidden states only. The modules that receive the layout of the batch (embeddings, stacks,
blocks) record it here, and the modules inside them read the keys of its tokens (`regard/data/random_keys.py`). A block
does so itself, so that gradient checkpointing, which runs it again later, finds the same keys.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor

from regard.data.random_keys import GOLDEN, MASK, token_keys
from regard.transformer.batch_layout import BatchLayout


class MaskPer(Enum):
    """What has a dropout mask of its own."""

    TOKEN = "token"
    SEQUENCE = "sequence"
    """A pooled vector."""
    BATCH = "batch"
    """All sequences share the mask (encodings of distances)."""


RowKeys = tuple[Tensor, int]
"""The key of each row of a tensor, and the site that draws."""


class DrawScope:
    """A batch whose sequences have keys, in one layer."""

    def __init__(self, layout: BatchLayout, layer: int = 0, selected: Tensor | None = None) -> None:
        keys = token_keys(layout)
        assert keys is not None
        self.token_keys = keys if selected is None else keys[selected]
        self.layout, self.layer = layout, layer
        self.rows_seen: Counter[int] = Counter()
        """Number of rows for which each site has drawn: a module may be called several times."""

    def keys_of_rows(self, count: int, site: int, one_per: MaskPer) -> RowKeys | None:
        """Return the keys of the tokens or of the sequences. None if there are not `count` of them."""
        keys = self.token_keys if one_per is MaskPer.TOKEN else self.layout.sequence_keys
        if keys is None or count != len(keys) or one_per is MaskPer.BATCH:
            return None
        self.rows_seen[site] += count
        return keys, self._mixed(site, self.rows_seen[site] // count - 1)

    def keys_of_queries(self, rows: int, length: int, site: int) -> RowKeys:
        """Return the keys of the next queries of an attention that takes the sequences of a batch group by group."""
        total, count = len(self.token_keys), rows * length
        if count > total:  # padded, in one group
            return self.layout.pad(self.token_keys).flatten(), self._mixed(site, 0)
        call, start = divmod(self.rows_seen[site], total)
        self.rows_seen[site] += count
        return self.token_keys[start : start + count], self._mixed(site, call)

    def _mixed(self, site: int, call: int) -> int:
        """Return other sites for other layers that share a module, and for later calls."""
        return (site + GOLDEN * (self.layer << 16 | call)) & MASK


class _Current(threading.local):
    scope: DrawScope | None = None


_current = _Current()


def current_scope() -> DrawScope | None:
    """Return the scope of the running module; None if its sequences have no keys."""
    return _current.scope


def enter_scope(layout: BatchLayout | None, selected: Tensor | None = None) -> None:
    """Set the scope from here on; `selected` restricts it to some tokens. None, or sequences without keys, end it."""
    has_keys = layout is not None and layout.sequence_keys is not None
    _current.scope = DrawScope(layout, selected=selected) if layout is not None and has_keys else None


@contextmanager
def draw_scope(layout: BatchLayout, layer: int = 0) -> Iterator[None]:
    """Set the scope inside the block."""
    before = _current.scope
    _current.scope = None if layout.sequence_keys is None else DrawScope(layout, layer)
    try:
        yield
    finally:
        _current.scope = before


def unkeyed_seed(one_per: MaskPer) -> int:
    """Return a seed for a mask that has no keys, from torch's generator.

    In a run with keys, the generator is in the same state for all batches of a step. A mask that is shared by all
    sequences is then the same for all of them; another one depends on the batch.
    """
    seed = int(torch.randint(1 << 62, ()))
    if _current.scope is None or one_per is MaskPer.BATCH:
        return seed
    return seed ^ (int(_current.scope.token_keys[0]) & (1 << 62) - 1)
