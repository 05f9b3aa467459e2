"""Character n-grams of words, with fastText's hash, so that its files can be read and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.vectors.vector_options import CharacterNgrams


def ngrams(word: str, options: CharacterNgrams) -> list[str]:
    """Return the n-grams of `<word>`, in fastText's order; `<` and `>` alone are none."""
    text = f"<{word}>"
    return [
        text[start : start + length]
        for start in range(len(text))
        for length in range(options.shortest, options.longest + 1)
        if start + length <= len(text) and not (length == 1 and start in (0, len(text) - 1))
    ]


def bucket(ngram: str, buckets: int) -> int:
    """Return the number of an n-gram's vector: FNV-1a of its UTF-8 bytes.

    fastText extends the sign of each byte to 32 bits; its files depend on it.
    """
    state = 2166136261
    for byte in ngram.encode("utf-8", "surrogatepass"):
        state = ((state ^ (byte | 0xFFFFFF00 if byte > 127 else byte)) * 16777619) & 0xFFFFFFFF
    return state % buckets


def word_rows(words: Sequence[str], options: CharacterNgrams) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the input rows of all words: row w for word w itself, and len(words) + bucket for its n-grams.

    The rows of word w are rows[starts[w] : starts[w + 1]].
    """
    cache: dict[str, int] = {}
    starts, rows = [0], []
    for index, word in enumerate(words):
        rows.append(index)
        for ngram in ngrams(word, options):
            if ngram not in cache:
                cache[ngram] = len(words) + bucket(ngram, options.buckets)
            rows.append(cache[ngram])
        starts.append(len(rows))
    return np.array(starts, np.int64), np.array(rows, np.int32)


@dataclass(frozen=True)
class NgramVectors:
    """The vectors of n-grams and of the words themselves, from which vectors of unknown words are made."""

    options: CharacterNgrams
    words: NDArray[np.float32]
    """The row of each word itself (words × dim); the word's vector is the mean of it and its n-grams."""
    buckets: NDArray[np.float32]
    """The n-gram vectors (buckets × dim)."""

    def vector(self, word: str) -> NDArray[np.float32] | None:
        """Return the mean of the n-gram vectors of an unknown word; None if it has no n-gram of the right length."""
        rows = [bucket(ngram, self.options.buckets) for ngram in ngrams(word, self.options)]
        return self.buckets[rows].mean(axis=0) if rows else None


def mean_vectors(
    starts: NDArray[np.int64], rows: NDArray[np.int32], inputs: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the mean of the input rows of each word."""
    result = np.empty((len(starts) - 1, inputs.shape[1]), np.float32)
    step = 4096
    for first in range(0, len(result), step):
        last = min(first + step, len(result))
        begin = starts[first]
        sums = np.add.reduceat(inputs[rows[begin : starts[last]]], starts[first:last] - begin, axis=0)
        result[first:last] = sums / np.diff(starts[first : last + 1])[:, None]
    return result
