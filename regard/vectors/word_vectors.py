"""Word vectors: `vectors["king"]`, nearest words, analogies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.vectors.char_ngrams import NgramVectors
from regard.vectors.nearest import NearestNeighbours


class UnknownWordError(ValueError):
    """A word has no vector."""


@dataclass(frozen=True)
class WordNeighbour:
    """A word that is near another."""

    word: str
    score: float
    """Cosine similarity."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words with their vectors, usually the most frequent first.

    vectors = regard.vectors.load("vectors.txt")
    vectors["king"]                               # a row of vectors.matrix, not a copy
    vectors.neighbours("king", count=5)
    vectors.analogy("man", "king", "woman")       # man is to king as woman is to …
    """

    words: Sequence[str]
    matrix: NDArray[np.float32]
    """One row for each word."""
    counts: NDArray[np.int64] | None = None
    """How often each word occurred in the text, where this is known."""
    ngrams: NgramVectors | None = None
    """Vectors of character n-grams, which give vectors to unknown words."""
    source: str = field(default="the vectors", repr=False)
    """What error messages call them: the file."""

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or len(self.words) != len(self.matrix):
            raise ValueError(
                f"{len(self.words)} words and a matrix {self.matrix.shape}: expected one row for each word"
            )

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return self.matrix.shape[1]

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def nearest(self) -> NearestNeighbours:
        """The index for searches; making it takes one pass over the matrix."""
        return NearestNeighbours(self.matrix)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        known = f", n-grams of {self.ngrams.options.shortest} to {self.ngrams.options.longest}" if self.ngrams else ""
        return f"WordVectors({len(self):,} words × {self.dim}{known})"

    def __contains__(self, word: object) -> bool:
        """Whether a word has a row of its own. (An unknown word may still have a vector, from its n-grams.)"""
        return word in self.index

    def __getitem__(self, word: str) -> NDArray[np.float32]:
        row = self.index.get(word)
        if row is not None:
            return self.matrix[row]
        vector = self.ngrams.vector(word) if self.ngrams else None
        if vector is None:
            raise UnknownWordError(f"{word!r} is not in {self.source}{self._hint(word)}")
        return vector

    def unit_vector(self, word: str) -> NDArray[np.float64]:
        """Return a word's vector, divided by its length."""
        vector = self[word].astype(np.float64)
        length = float(np.sqrt((vector * vector).sum()))
        return vector / length if length else vector

    def neighbours(self, word: str | NDArray[Any], count: int = 10) -> list[WordNeighbour]:
        """Return the nearest words of a word (without itself) or of a vector, by cosine similarity."""
        if isinstance(word, str):
            return self._search(self[word], count, {word})
        return self._search(word, count, ())

    def analogy(self, first: str, second: str, third: str, count: int = 10) -> list[WordNeighbour]:
        """Return the words that are to `third` as `second` is to `first`: near second - first + third.

        The three vectors have length one; the three words themselves are never in the result (3CosAdd).
        """
        query = self.unit_vector(second) - self.unit_vector(first) + self.unit_vector(third)
        return self._search(query, count, {first, second, third})

    def similarity(self, first: str, second: str) -> float:
        """Return the cosine similarity of two words."""
        return float(self.unit_vector(first) @ self.unit_vector(second))

    def _search(self, query: NDArray[Any], count: int, without: Iterable[str]) -> list[WordNeighbour]:
        excluded = {self.index[word] for word in without if word in self.index}
        found = self.nearest.search(query, count + len(excluded))
        pairs = zip(found.indices[0].tolist(), found.scores[0].tolist(), strict=True)
        return [WordNeighbour(self.words[row], score) for row, score in pairs if row not in excluded][:count]

    def _hint(self, word: str) -> str:
        for other in (word.lower(), word.capitalize(), word.upper(), word.replace(" ", "_")):
            if other != word and other in self.index:
                return f"; did you mean {other!r}?"
        return ""
