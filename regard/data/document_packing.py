"""Document packing for language modelling: batches without padding and without attention across documents.

A long document is split into chunks of at most `max_length` tokens. Each chunk starts with the last token of the
previous one, so that every token but a document's first is predicted exactly once. Chunks are concatenated until a
batch is full. Each chunk is a row of its own (`BatchLayout`), so nothing attends across documents, and positions start
at 0 in each chunk.

    documents      a b c d e | f g | h i j          max_length 3, batch_tokens 8
    batch 0        [h i j] [a b c] [f g]
    batch 1        [c d e]

In the first epoch the chunks of a document start at its first token. In each later epoch they are shifted to the left
by a random number of tokens, so that the same text is read with different contexts:

    epoch 1        [a b] [b c d] [d e]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.epoch_plan import EpochPlan, IntArray, random_integers, random_permutation


def chunk_documents(
    lengths: NDArray[Any], max_length: int, shift: IntArray | int = 0
) -> tuple[IntArray, IntArray, IntArray]:
    """Return row, start and end of each chunk. A document of one token has nothing to predict, and no chunk.

    `shift` is how much shorter the first chunk of each document is than the others: at most `max_length` - 2.
    """
    lengths = lengths.astype(np.int64)
    shift = np.where(lengths > max_length, shift, 0)  # a document that fits into one chunk is not split
    counts = np.where(lengths < 2, 0, 1 + (lengths - 2 + shift) // (max_length - 1))
    rows = np.repeat(np.arange(len(lengths)), counts)
    chunk_index = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = chunk_index * (max_length - 1) - shift[rows]
    return rows, np.maximum(starts, 0), np.minimum(starts + max_length, lengths[rows])


def pack_documents(lengths: NDArray[Any], max_length: int, batch_tokens: int, seed: int, epoch: int) -> EpochPlan:
    """Plan an epoch: all chunks in random order, each batch filled up to `batch_tokens`."""
    shift = random_integers(max_length - 1, len(lengths), seed, epoch, purpose=1) if epoch else 0
    rows, starts, ends = chunk_documents(lengths, max_length, shift)
    order = random_permutation(len(rows), seed, epoch, purpose=0)
    rows, starts, ends = rows[order], starts[order], ends[order]
    cumulative = np.cumsum(ends - starts)
    bounds = [0]
    while bounds[-1] < len(rows):
        packed_tokens = int(cumulative[bounds[-1] - 1]) if bounds[-1] else 0
        bounds.append(int(np.searchsorted(cumulative, packed_tokens + batch_tokens, side="right")))
    return EpochPlan(rows, np.array(bounds, np.int64), np.arange(len(bounds) - 1), (starts, ends))
