"""Epoch plans: which rows of a corpus form which batch, computed from the lengths alone, without reading a row.

The plan of any epoch is a function of seed and epoch number, so training can start at any step of any epoch at once.
The random order comes from the raw bits of a counter-based generator, which are the same in every version of numpy
(its shuffling methods give no such guarantee).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class EpochPlan:
    """The batches of an epoch: rows in order, and the bounds of each batch."""

    rows: IntArray
    bounds: IntArray
    """Batch i holds rows[bounds[i] : bounds[i + 1]]."""
    order: IntArray
    """Batch indices in the order of the epoch."""
    chunks: tuple[IntArray, IntArray] | None = None
    """Start and end of the chunk of each row; None if rows are complete."""

    def __len__(self) -> int:
        return len(self.order)

    def batch(self, step: int) -> tuple[IntArray, tuple[IntArray, IntArray] | None]:
        """Return the rows of the batch at this step, and the start and end of their chunks."""
        if not 0 <= step < len(self):
            raise IndexError(f"step {step} is out of range: the epoch has {len(self)} steps")
        i = int(self.order[step])
        span = slice(int(self.bounds[i]), int(self.bounds[i + 1]))
        return self.rows[span], None if self.chunks is None else (self.chunks[0][span], self.chunks[1][span])


def random_permutation(count: int, seed: int, epoch: int, purpose: int) -> IntArray:
    """Return a permutation of range(count), determined by seed, epoch and purpose."""
    return np.argsort(_random_bits(count, seed, epoch, purpose), kind="stable")


def random_integers(high: int, count: int, seed: int, epoch: int, purpose: int) -> IntArray:
    """Return `count` random integers from 0 to `high` - 1, determined by seed, epoch and purpose."""
    return (_random_bits(count, seed, epoch, purpose) % np.uint64(high)).astype(np.int64)


def _random_bits(count: int, seed: int, epoch: int, purpose: int) -> NDArray[np.uint64]:
    key = np.array([seed % 2**64, epoch], np.uint64)
    return np.asarray(np.random.Philox(key=key, counter=[0, 0, 0, purpose]).random_raw(count))


def bucket_by_length(columns: list[NDArray[Any]], batch_tokens: int) -> tuple[IntArray, IntArray]:
    """Bucket rows by length. Return a sort key for each row (equal lengths have equal keys) and the batch bounds.

    `columns` holds the lengths of the rows in each column. Rows are grouped into strips by their length in the first
    column. Within a strip they are sorted by the length in the second column, ascending and descending in turn, so that
    neighbours have similar lengths in both columns, also across the border of two strips:

        target                  A batch holds as many neighbours as the budget allows: rows × longest row is at most
          │ ╭─╮ ╭─╮ ╭           `batch_tokens` in each column. Of a few strip widths, the one with the least padding is
          │ │ │ │ │ │           used.
          │ │ ╰─╯ ╰─╯
          └────────── source
    """
    best: tuple[int, IntArray, IntArray] | None = None
    for width in (1, 2, 3):
        keys = _sort_keys(columns, width)
        order = np.argsort(keys, kind="stable")
        lengths = np.stack([column[order] for column in columns]).astype(np.int64)
        bounds = _batch_bounds(lengths, batch_tokens)
        size = padded_size(lengths, bounds)
        if best is None or size < best[0]:
            best = size, keys, bounds
    assert best is not None
    return best[1], best[2]


def _sort_keys(columns: list[NDArray[Any]], width: int) -> IntArray:
    first = columns[0].astype(np.int64)
    second = columns[1].astype(np.int64) if len(columns) > 1 else np.zeros_like(first)
    strip, top = first // width, int(second.max(initial=0)) + 1
    alternating = np.where(strip % 2 == 0, second, top - second)  # ascending in even strips, descending in odd ones
    return (strip * (top + 1) + alternating) * width + first % width


def _batch_bounds(lengths: NDArray[np.int64], batch_tokens: int) -> IntArray:
    """Return the bounds of batches that hold as many rows as fit, in this order, and at least one."""
    count = lengths.shape[1]
    bounds = [0]
    lookahead = 64
    while bounds[-1] < count:
        candidates = lengths[:, bounds[-1] : bounds[-1] + lookahead]
        longest = np.maximum.accumulate(candidates, axis=1).max(axis=0)
        fits = int(np.searchsorted(longest * np.arange(1, candidates.shape[1] + 1), batch_tokens, side="right"))
        if fits == lookahead:
            lookahead *= 2  # all candidates fit, so the batch may be larger
            continue
        bounds.append(bounds[-1] + max(1, fits))
        lookahead = max(64, 2 * fits)
    return np.array(bounds, np.int64)


def padded_size(lengths: NDArray[np.int64], bounds: IntArray) -> int:
    """Return the number of positions of all batches, each padded to (batch, longest), summed over all columns."""
    if len(bounds) < 2:
        return 0
    longest = np.maximum.reduceat(lengths, bounds[:-1], axis=1).sum(axis=0)
    return int((longest * np.diff(bounds)).sum())
