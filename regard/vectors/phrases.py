"""Phrases: pairs of words that occur together more often than their counts explain, joined to one word.

The score of a pair is (count(ab) - min_count) · N / (count(a) · count(b)) for a text of N words (Mikolov et al. 2013,
"Distributed Representations of Words and Phrases and their Compositionality", equation 6, scaled as in word2phrase).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.vectors.vector_options import TextOptions
from regard.vectors.word_text import map_indices
from regard.vectors.word_vocabulary import WordVocabulary, make_vocabulary

JOINER = "_"
PART = 1 << 20


@dataclass(frozen=True)
class PairCounts:
    """Pairs of neighbouring words, sorted by (first, second), with their counts."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    counts: NDArray[np.int64]


def count_pairs(tokens: NDArray[np.int32], vocabulary_size: int) -> PairCounts:
    """Count all pairs of neighbouring words of a line."""
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for start in range(0, len(tokens), PART):
        part = tokens[start : start + PART + 1].astype(np.int64)
        both = (part[:-1] >= 0) & (part[1:] >= 0)
        new_keys, new_counts = np.unique((part[:-1] * vocabulary_size + part[1:])[both], return_counts=True)
        all_keys = np.concatenate([keys, new_keys])
        keys, inverse = np.unique(all_keys, return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([counts, new_counts]), len(keys)).astype(np.int64)
    return PairCounts(keys // vocabulary_size, keys % vocabulary_size, counts)


def find_phrases(pairs: PairCounts, vocabulary: WordVocabulary, options: TextOptions) -> PairCounts:
    """Return the pairs whose score is above the threshold."""
    singles = vocabulary.counts[pairs.first].astype(np.float64) * vocabulary.counts[pairs.second]
    scores = (pairs.counts - options.min_count) * float(vocabulary.total) / singles
    chosen = scores > options.phrase_threshold
    return PairCounts(pairs.first[chosen], pairs.second[chosen], pairs.counts[chosen])


def join_phrases(
    vocabulary: WordVocabulary, tokens: NDArray[np.int32], phrases: PairCounts, options: TextOptions, target: Path
) -> tuple[WordVocabulary, NDArray[np.int32]]:
    """Join phrases from left to right; a word belongs to at most one. Return the new vocabulary and text."""
    size = len(vocabulary)
    keys = phrases.first * size + phrases.second
    names = [
        f"{vocabulary.words[first]}{JOINER}{vocabulary.words[second]}"
        for first, second in zip(phrases.first, phrases.second, strict=True)
    ]
    # A joined word may exist already, or be made of other parts: a_b + c = a + b_c.
    index = dict(vocabulary.index)
    joined = np.array([index.setdefault(name, len(index)) for name in names], np.int64)
    words = list(index)
    new_tokens = np.empty(len(tokens), np.int32)
    length = 0
    for start in range(0, len(tokens), PART):
        part = _join(np.asarray(tokens[start : start + PART]).astype(np.int64), keys, joined, size)
        new_tokens[length : length + len(part)] = part
        length += len(part)
    new_tokens = new_tokens[:length]
    counts = np.bincount(new_tokens[new_tokens >= 0], minlength=len(words))
    new_vocabulary = make_vocabulary(
        {word: int(count) for word, count in zip(words, counts, strict=True) if count}, options
    )
    lookup = np.array([new_vocabulary.index.get(word, -2) for word in words] + [-2, -1], np.int32)  # by index -2, -1
    lookup[new_tokens].tofile(target)
    return new_vocabulary, map_indices(target)


def _join(part: NDArray[np.int64], keys: NDArray[np.int64], joined: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    if len(keys) == 0 or len(part) < 2:
        return part
    pair_keys = np.where((part[:-1] >= 0) & (part[1:] >= 0), part[:-1] * size + part[1:], -1)
    place = np.minimum(np.searchsorted(keys, pair_keys), len(keys) - 1)
    matches = np.flatnonzero(keys[place] == pair_keys)
    if len(matches) == 0:
        return part
    # Of overlapping matches (i, i + 1, ...), every second one counts: number them within a run.
    run_starts = np.flatnonzero(np.diff(matches, prepend=-2) != 1)
    within = np.arange(len(matches)) - np.repeat(run_starts, np.diff(np.append(run_starts, len(matches))))
    matches = matches[within % 2 == 0]
    part = part.copy()
    part[matches] = joined[place[matches]]
    return np.delete(part, matches + 1)
