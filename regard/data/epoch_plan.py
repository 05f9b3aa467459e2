"""Which rows of a corpus form which batch: plans, made from lengths alone, without reading a row.

The plan of any epoch comes straight from the seed and the epoch's number, so training can begin at any step of any
epoch at once. Random order comes from the bits of a counter-based generator, which are the same in every version of
numpy (the methods that shuffle are not promised to be).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """An epoch: rows in order, and where each batch of them begins."""

    rows: Numbers
    bounds: Numbers
    """Batch i is rows bounds[i] to bounds[i + 1]."""
    order: Numbers
    """The batches in the order of the epoch."""
    pieces: tuple[Numbers, Numbers] | None = None
    """Where each row's piece begins and ends; None where rows are taken whole."""

    def __len__(self) -> int:
        return len(self.order)

    def batch(self, step: int) -> tuple[Numbers, tuple[Numbers, Numbers] | None]:
        """The rows of the batch at this step, and their pieces."""
        if not 0 <= step < len(self):
            raise IndexError(f"step {step} of an epoch of {len(self)} steps")
        number = int(self.order[step])
        part = slice(int(self.bounds[number]), int(self.bounds[number + 1]))
        return self.rows[part], None if self.pieces is None else (self.pieces[0][part], self.pieces[1][part])


def shuffled(count: int, seed: int, epoch: int, purpose: int) -> Numbers:
    """The numbers below `count` in an order that seed, epoch and purpose determine."""
    return np.argsort(_bits(count, seed, epoch, purpose), kind="stable")


def below(most: int, count: int, seed: int, epoch: int, purpose: int) -> Numbers:
    """So many random numbers from 0 to `most` - 1, determined by seed, epoch and purpose."""
    return (_bits(count, seed, epoch, purpose) % np.uint64(most)).astype(np.int64)


def _bits(count: int, seed: int, epoch: int, purpose: int) -> NDArray[np.uint64]:
    key = np.array([seed % 2**64, epoch], np.uint64)
    return np.asarray(np.random.Philox(key=key, counter=[0, 0, 0, purpose]).random_raw(count))


def by_length(columns: list[NDArray[Any]], tokens: int) -> tuple[Numbers, Numbers]:
    """Where each row stands when all are sorted by length, equal ones sharing a place; and where batches begin.

    Rows are sorted by the first column's length in strips, and inside a strip by the second's, up in one strip and down
    in the next, so that neighbours are alike in both even where one strip meets the next:

        target                  A batch is as many neighbours as the budget allows: rows × longest row is at most
          │ ╭─╮ ╭─╮ ╭           `tokens` in each column. The strips' width is the one of a few that pads least.
          │ │ │ │ │ │
          │ │ ╰─╯ ╰─╯
          └────────── source
    """
    best: tuple[int, Numbers, Numbers] | None = None
    for width in (1, 2, 3):
        places = _places(columns, width)
        order = np.argsort(places, kind="stable")
        lengths = np.stack([column[order] for column in columns]).astype(np.int64)
        bounds = _cut(lengths, tokens)
        area = padded_area(lengths, bounds)
        if best is None or area < best[0]:
            best = area, places, bounds
    assert best is not None
    return best[1], best[2]


def _places(columns: list[NDArray[Any]], width: int) -> Numbers:
    first = columns[0].astype(np.int64)
    second = columns[1].astype(np.int64) if len(columns) > 1 else np.zeros_like(first)
    strip, most = first // width, int(second.max(initial=0)) + 1
    turned = np.where(strip % 2 == 0, second, most - second)
    return (strip * (most + 1) + turned) * width + first % width


def _cut(lengths: NDArray[np.int64], tokens: int) -> Numbers:
    """Bounds of batches: as many rows as fit, in this order, and at least one."""
    count = lengths.shape[1]
    bounds = [0]
    look = 64
    while bounds[-1] < count:
        ahead = lengths[:, bounds[-1] : bounds[-1] + look]
        longest = np.maximum.accumulate(ahead, axis=1).max(axis=0)
        fits = int(np.searchsorted(longest * np.arange(1, ahead.shape[1] + 1), tokens, side="right"))
        if fits == look:
            look *= 2  # the batch is larger than what was looked at
            continue
        bounds.append(bounds[-1] + max(1, fits))
        look = max(64, 2 * fits)
    return np.array(bounds, np.int64)


def padded_area(lengths: NDArray[np.int64], bounds: Numbers) -> int:
    """How many places the batches have when each is padded to a rectangle, in all columns together."""
    if len(bounds) < 2:
        return 0
    longest = np.maximum.reduceat(lengths, bounds[:-1], axis=1).sum(axis=0)
    return int((longest * np.diff(bounds)).sum())
