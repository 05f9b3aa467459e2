"""Standard tests of word vectors: analogy questions (questions-words), similarities of pairs (WordSim353, SimLex999).

The protocol decides the number, so every result says it: how many of the most frequent words can be answers, whether
case counts, and what happens to questions with unknown words.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.files import read_text
from regard.vectors.word_vectors import WordVectors

QUESTIONS_AT_ONCE = 256


@dataclass(frozen=True)
class Section:
    """Analogy questions of one kind."""

    name: str
    correct: int
    total: int
    """Questions whose four words are all known."""
    skipped: int
    """Questions with an unknown word."""

    @property
    def accuracy(self) -> float:
        """Share of correct answers among the questions that can be answered."""
        return self.correct / self.total if self.total else 0.0


@dataclass(frozen=True)
class AnalogyScores:
    """The result on a file of analogy questions."""

    sections: tuple[Section, ...]
    protocol: str

    @property
    def total(self) -> Section:
        """All sections together."""
        return self._sum("total", self.sections)

    @property
    def semantic(self) -> Section:
        """The sections whose name does not begin with `gram`."""
        return self._sum("semantic", [part for part in self.sections if not part.name.startswith("gram")])

    @property
    def syntactic(self) -> Section:
        """The sections whose name begins with `gram`, as in questions-words."""
        return self._sum("syntactic", [part for part in self.sections if part.name.startswith("gram")])

    @staticmethod
    def _sum(name: str, sections: Sequence[Section]) -> Section:
        return Section(
            name,
            sum(part.correct for part in sections),
            sum(part.total for part in sections),
            sum(part.skipped for part in sections),
        )


@dataclass(frozen=True)
class SimilarityScores:
    """The result on a file of word pairs with similarities."""

    spearman: float
    """Rank correlation of cosine similarities with the file's."""
    pearson: float
    total: int
    """Pairs whose words are both known."""
    skipped: int
    protocol: str


def evaluate_analogies(
    vectors: WordVectors, path: Path | str, *, restrict: int | None = 30_000, lowercase: bool = True
) -> AnalogyScores:
    """Answer the questions of a file like questions-words: lines of four words, sections after `: name`.

    The answer to `a b c ?` is the word nearest to b - a + c (vectors of length one), other than the three.

    Args:
        vectors: the vectors; the most frequent words come first.
        path: the questions.
        restrict: only so many words are known, the first of the file; None: all.
        lowercase: compare in lower case; of words that differ in case only, the first counts.
    """
    count = min(restrict or len(vectors), len(vectors))
    index: dict[str, int] = {}
    for row, word in enumerate(vectors.words[:count]):
        index.setdefault(word.lower() if lowercase else word, row)
    candidates = np.array(sorted(index.values()), np.int64)
    place = {int(row): number for number, row in enumerate(candidates)}
    matrix = _unit_rows(vectors.matrix[candidates])
    sections = []
    for name, questions in _read_questions(Path(path), lowercase):
        known = [[place[index[word]] for word in words] for words in questions if all(word in index for word in words)]
        correct = int((_answer(matrix, np.array(known)) == np.array(known)[:, 3]).sum()) if known else 0
        sections.append(Section(name, correct, len(known), len(questions) - len(known)))
    if not sections:
        raise ValueError(f"{path} has no questions; expected lines of four words, after a line `: name`")
    protocol = (
        f"the {count:,} most frequent words, {'without' if lowercase else 'with'} regard to case, 3CosAdd, "
        "questions with unknown words skipped"
    )
    return AnalogyScores(tuple(sections), protocol)


def _unit_rows(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(lengths == 0, 1, lengths)).astype(np.float32, copy=False)


def _answer(matrix: NDArray[np.float32], questions: NDArray[np.int64]) -> NDArray[np.int64]:
    answers = np.empty(len(questions), np.int64)
    for start in range(0, len(questions), QUESTIONS_AT_ONCE):
        part = questions[start : start + QUESTIONS_AT_ONCE]
        scores = (matrix[part[:, 1]] - matrix[part[:, 0]] + matrix[part[:, 2]]) @ matrix.T
        scores[np.arange(len(part))[:, None], part[:, :3]] = -np.inf
        answers[start : start + len(part)] = scores.argmax(axis=1)
    return answers


def _read_questions(path: Path, lowercase: bool) -> Iterator[tuple[str, list[list[str]]]]:
    name, questions = path.stem, list[list[str]]()
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.startswith(":"):
            if questions:
                yield name, questions
            name, questions = line[1:].strip(), []
            continue
        words = (line.lower() if lowercase else line).split()
        if words and len(words) != 4:
            raise ValueError(f"{path}, line {number}: expected four words, found {len(words)}: {line[:60]!r}")
        if words:
            questions.append(words)
    if questions:
        yield name, questions


def evaluate_similarity(vectors: WordVectors, path: Path | str, *, lowercase: bool = True) -> SimilarityScores:
    """Compare cosine similarities with a file of `word word number` (tabs, commas or spaces; # begins a comment)."""
    theirs, ours, skipped = [], [], 0
    for first, second, value in _read_pairs(Path(path)):
        try:
            names = [_find(vectors, word, lowercase) for word in (first, second)]
        except KeyError:
            skipped += 1
            continue
        theirs.append(value)
        ours.append(vectors.similarity(*names))
    if len(ours) < 2:
        raise ValueError(f"{path}: {len(ours)} of {len(ours) + skipped} pairs have vectors; at least 2 are needed")
    protocol = f"cosine, {'without' if lowercase else 'with'} regard to case, pairs with unknown words skipped"
    return SimilarityScores(
        _pearson(ranks(np.array(ours)), ranks(np.array(theirs))),
        _pearson(np.array(ours), np.array(theirs)),
        len(ours),
        skipped,
        protocol,
    )


def _find(vectors: WordVectors, word: str, lowercase: bool) -> str:
    for name in (word, word.lower(), word.capitalize(), word.upper()) if lowercase else (word,):
        if name in vectors:
            return name
    if vectors.ngrams and vectors.ngrams.vector(word) is not None:
        return word.lower() if lowercase else word
    raise KeyError(word)


def _read_pairs(path: Path) -> Iterator[tuple[str, str, float]]:
    is_first = True
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = next(csv.reader([line])) if "," in line and "\t" not in line else line.split()
        try:
            yield fields[0], fields[1], float(fields[2])
        except (IndexError, ValueError):
            if not is_first:  # the first line may name the columns
                raise ValueError(f"{path}, line {number}: expected `word word number`, found {line[:60]!r}") from None
        is_first = False


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _pearson(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    first, second = first - first.mean(), second - second.mean()
    norm = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / norm) if norm else 0.0
