"""Documents packed for language modelling: batches without padding, and without attention across documents.

A long document is cut into pieces of at most `length` tokens. Each piece begins with the last token of the one before,
so that every token but a document's first is predicted exactly once. Pieces are laid side by side until a batch is
full; each is a row of its own (`Rows`), so nothing attends across documents, and positions count from 0 in each.

    documents      a b c d e | f g | h i j          length 3, 8 tokens a batch
    batch 0        [h i j] [a b c] [f g]
    batch 1        [c d e]

In the first epoch a document is cut from its beginning on, in each later one a random number of tokens earlier, so that
a text that is read many times is seen in ever other contexts:

    epoch 1        [a b] [b c d] [d e]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.epoch_plan import Numbers, Plan, below, shuffled


def pieces(lengths: NDArray[Any], length: int, moved: Numbers | int = 0) -> tuple[Numbers, Numbers, Numbers]:
    """Row, begin and end of each piece. A document of a single token has nothing to predict, and no piece.

    `moved` is how much shorter each document's first piece is than the others: at most `length` - 2.
    """
    lengths = lengths.astype(np.int64)
    moved = np.where(lengths > length, moved, 0)  # what fits into one piece is not cut
    counts = np.where(lengths < 2, 0, 1 + (lengths - 2 + moved) // (length - 1))
    rows = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = number * (length - 1) - moved[rows]
    return rows, np.maximum(begins, 0), np.minimum(begins + length, lengths[rows])


def pack(lengths: NDArray[Any], length: int, tokens: int, seed: int, epoch: int) -> Plan:
    """An epoch: all pieces in random order, as many in a batch as it has room for."""
    moved = below(length - 1, len(lengths), seed, epoch, purpose=1) if epoch else 0
    rows, begins, ends = pieces(lengths, length, moved)
    order = shuffled(len(rows), seed, epoch, purpose=0)
    rows, begins, ends = rows[order], begins[order], ends[order]
    total = np.cumsum(ends - begins)
    bounds = [0]
    while bounds[-1] < len(rows):
        done = int(total[bounds[-1] - 1]) if bounds[-1] else 0
        bounds.append(int(np.searchsorted(total, done + tokens, side="right")))
    return Plan(rows, np.array(bounds, np.int64), np.arange(len(bounds) - 1), (begins, ends))
