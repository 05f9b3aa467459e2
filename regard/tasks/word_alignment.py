"""Word alignment: which target tokens translate a source token, learned from parallel text for a shortlist.

IBM Model 1 (Brown et al. 1993) has translation probabilities p(t|s) only. They start uniform; each EM iteration
computes expected counts from the probabilities of the iteration before (E step) and normalizes them (M step):

    count(t ← s) = p(t|s) / Σ p(t|s') over the line         p(t|s) = count of t from s / count of all tokens from s

Every line has one more source token, NULL, for target tokens without a counterpart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.example import Pair
from regard.engine.shortlist import Shortlist
from regard.tokenization.tokenizer import Tokenizer

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

LINES_PER_BATCH = 2000
"""Number of lines in a batch."""
MAX_PENDING_COUNTS = 20_000_000
"""Maximum number of counts that are collected before they are merged."""


@dataclass(frozen=True, kw_only=True)
class ShortlistOptions:
    """Options of `learn_shortlist`."""

    top_k: int = 50
    """Maximum number of target tokens for each source token."""
    num_frequent: int = 100
    """Number of the most frequent target tokens, which are in every shortlist."""
    iterations: int = 4
    """Number of EM iterations."""
    max_lines: int = 1_000_000
    """Maximum number of lines; of a larger corpus, only every second, every third, … batch of lines is used."""


DEFAULT_OPTIONS = ShortlistOptions()


@dataclass(frozen=True)
class ParallelBatch:
    """A batch of aligned lines; the tokens of each side are concatenated."""

    source: IntArray
    source_lengths: IntArray
    target: IntArray
    target_lengths: IntArray

    def token_pairs(self, null_token: int) -> tuple[IntArray, IntArray, IntArray]:
        """Pair each target token with every source token of its line, and with NULL as the last.

        Return the source tokens, the target tokens, and the index of the first pair of each target token.
        """
        ends = np.cumsum(self.source_lengths)
        sources = np.insert(self.source, ends, null_token)
        line = np.repeat(np.arange(len(ends)), self.target_lengths)
        num_pairs = (self.source_lengths + 1)[line]
        starts = np.cumsum(num_pairs) - num_pairs
        first = (ends - self.source_lengths + np.arange(len(ends)))[line]
        indices = np.arange(int(num_pairs.sum())) + np.repeat(first - starts, num_pairs)
        return sources[indices], np.repeat(self.target, num_pairs), starts


def learn_shortlist(
    pairs: Iterable[Pair], tokenizer: Tokenizer, sizes: tuple[int, int], options: ShortlistOptions = DEFAULT_OPTIONS
) -> Shortlist:
    """Learn a shortlist from pairs of lines. `sizes`: the vocabulary sizes of source and target."""
    corpus = _subsample(list(_encode_pairs(pairs, tokenizer)), options.max_lines)
    if not any(len(batch.target) for batch in corpus):
        raise ValueError("cannot learn a shortlist: all lines are empty")
    source, target = sizes
    keys, probabilities = translation_probabilities(corpus, sizes, options.iterations)
    not_null = keys < source * target
    keys, probabilities = keys[not_null], probabilities[not_null]
    order = np.lexsort((-probabilities, keys // target))
    sources = keys[order] // target
    starts = np.searchsorted(sources, np.arange(source + 1))
    in_top_k = np.arange(len(sources)) - starts[sources] < options.top_k
    counts = sum(np.bincount(batch.target, minlength=target) for batch in corpus)
    frequent = np.argsort(-np.asarray(counts), kind="stable")[: options.num_frequent]
    return Shortlist(
        starts=_tensor(np.searchsorted(sources[in_top_k], np.arange(source + 1))),
        targets=_tensor(keys[order][in_top_k] % target),
        frequent=_tensor(frequent[np.asarray(counts)[frequent] > 0]),
        vocabulary=target,
    )


def translation_probabilities(
    corpus: Sequence[ParallelBatch], sizes: tuple[int, int], iterations: int
) -> tuple[IntArray, FloatArray]:
    """Return the keys, s · target vocabulary + t, and p(t|s) of all pairs that occur; NULL is s = source vocabulary."""
    source, target = sizes
    keys: IntArray = np.zeros(0, np.int64)
    probabilities: FloatArray = np.zeros(0)
    for iteration in range(max(iterations, 1)):
        pending = [] if iteration == 0 else [(keys, np.zeros(len(keys)))]
        for batch in corpus:
            sources, targets, starts = batch.token_pairs(source)
            if not len(starts):
                continue
            batch_keys, inverse = np.unique(sources * target + targets, return_inverse=True)
            by_key = np.ones(len(batch_keys)) if iteration == 0 else probabilities[np.searchsorted(keys, batch_keys)]
            by_pair = by_key[inverse]
            num_pairs = np.diff(starts, append=len(by_pair))
            counts = by_pair / np.repeat(np.add.reduceat(by_pair, starts), num_pairs)
            _accumulate(pending, batch_keys, _sum_by_key(inverse, counts))
        keys, counts = _merge_counts(pending)
        probabilities = counts / _sum_by_key(keys // target, counts)[keys // target]
    return keys, probabilities


def _accumulate(pending: list[tuple[IntArray, FloatArray]], keys: IntArray, counts: FloatArray) -> None:
    """Add expected counts: in place if the first entry has all the keys, else as a new entry."""
    first_keys, totals = pending[0] if pending else (keys, counts)
    indices = np.searchsorted(first_keys, keys)
    if pending and len(first_keys) and indices[-1] < len(first_keys) and bool((first_keys[indices] == keys).all()):
        totals[indices] += counts
        return
    pending.append((keys, counts))
    if sum(len(entry_keys) for entry_keys, _ in pending) > MAX_PENDING_COUNTS:
        pending[:] = [_merge_counts(pending)]


def _merge_counts(pending: Sequence[tuple[IntArray, FloatArray]]) -> tuple[IntArray, FloatArray]:
    keys, inverse = np.unique(np.concatenate([keys for keys, _ in pending]), return_inverse=True)
    return keys, _sum_by_key(inverse, np.concatenate([counts for _, counts in pending]))


def _sum_by_key(keys: IntArray, values: FloatArray) -> FloatArray:
    """Return the sum of the values of each key."""
    return np.bincount(keys, values).astype(np.float64, copy=False)


def mean_shortlist_length(pairs: Iterable[Pair], tokenizer: Tokenizer, shortlist: Shortlist) -> float:
    """Return the mean number of tokens in the shortlist of a text."""
    sources = tokenizer.encode_batch_ids([pair.source for pair in pairs], add_special_tokens=False)
    return sum(len(shortlist.lookup(ids)) for ids in sources) / max(len(sources), 1)


def _encode_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer) -> Iterator[ParallelBatch]:
    remaining = iter(pairs)
    while batch := list(islice(remaining, LINES_PER_BATCH)):
        source = tokenizer.encode_batch_ids([pair.source for pair in batch], add_special_tokens=False)
        target = tokenizer.target.encode_batch_ids([pair.target for pair in batch], add_special_tokens=False)
        yield ParallelBatch(*_flatten(source), *_flatten(target))


def _flatten(lines: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Return the concatenated tokens of all lines, and the lengths of the lines."""
    lengths = np.array([len(line) for line in lines], np.int64)
    return np.fromiter((token for line in lines for token in line), np.int64, int(lengths.sum())), lengths


def _subsample(corpus: Sequence[ParallelBatch], max_lines: int) -> list[ParallelBatch]:
    """Return every n-th batch, with the smallest n that keeps about `max_lines` lines."""
    step = -(-sum(len(batch.target_lengths) for batch in corpus) // max_lines)
    return list(corpus[:: max(step, 1)])


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int32))
