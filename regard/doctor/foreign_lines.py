"""Lines in another language than the rest of their file, judged by the file alone: no model of any language is needed.

Two observations are added up, each on the scale of log-odds:

- Every language has a few dozen very frequent words (the, and, of). A line without them is unusual, and the more so the
  more words it has.
- The mean log-probability of the characters of a line under a trigram model of the side, as a robust z-score. The line
  itself is left out of the model.

Names, numbers and rare words make one of the two unusual, another language makes both. On Multi30k with lines of
another language added, this finds more than 95% of them, and reports fewer than 1% of the other lines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector
from regard.doctor.script_checks import script_of
from regard.doctor.split_reader import SplitBatch

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MIN_LINES, FIT_LINES = 500, 50_000
"""Number of lines from which on a side is checked, and of those that its model is made of."""
NUM_CHARACTERS = 96
"""Number of characters that are distinguished: the most frequent ones."""
SMOOTHING = 5.0
COMMON_WORD_SHARE = 0.04
"""A word is very frequent if it is in this fraction of the lines."""
MIN_COVERAGE = 0.15
"""Minimum fraction of all words that are very frequent. Below it, words are not separated by spaces, for example."""
FOREIGN_COVERAGE = 1 / 8
"""Assumed fraction in another language, relative to that of the side."""
MAX_WORDS, MAX_CHARACTERS = 20, 120
"""A longer line counts as one of this length: its characters and words are not independent."""
MAX_TEXT = 400
"""The rest of a longer line is not read, so that one line does not make up a model."""
MIN_SCORE, MAX_SCORE = 6.0, 7.0
"""Scores from which on a line is reported, among up to 1,000 lines and from 30,000 on: many lines have odd ones."""


@dataclass(frozen=True)
class _Row:
    """One line of a side."""

    file: Path
    line: int
    text: str
    pair_file: Path
    """The file of the source side."""


class ForeignLineCheck:
    """Lines of a side that seem to be in another language than most of its lines.

    `reported` are the pairs (file of the source, line) that the check of languages by pairs has found.
    """

    def __init__(self, collector: FindingCollector, reported: Set[tuple[Path, int]]) -> None:
        self.collector, self.reported = collector, reported
        self.pending: dict[str, list[_Row]] = {"source": [], "target": []}
        """The lines that were read before there were enough for a model."""
        self.models: dict[str, _SideModel] = {}

    def update(self, batch: SplitBatch) -> None:
        """Check a batch of pairs."""
        sources, targets = batch.fields["source"], batch.fields["target"]
        for side in ("source", "target"):
            rows = [
                _Row(batch.files[side], line, _visible(text[:MAX_TEXT]), batch.file)
                for line, text, source, target in zip(batch.lines, batch.fields[side], sources, targets, strict=True)
                if source != target
            ]
            if model := self.models.get(side):
                self._report(model, rows, model.scores([row.text for row in rows]))
                continue
            self.pending[side] += rows
            if len(self.pending[side]) >= FIT_LINES:
                self._fit(side)

    def finish(self) -> None:
        """Check the lines that are still pending."""
        for side, rows in self.pending.items():
            if side not in self.models and len(rows) >= MIN_LINES:
                self._fit(side)

    def _fit(self, side: str) -> None:
        rows = self.pending[side]
        self.models[side] = model = _SideModel([row.text for row in rows])
        self._report(model, rows, model.fit_scores)
        self.pending[side] = []

    def _report(self, model: _SideModel, rows: Sequence[_Row], scores: FloatArray) -> None:
        for index in np.flatnonzero(scores >= model.threshold):
            row = rows[int(index)]
            if (row.pair_file, row.line) not in self.reported and _main_script(row.text) in (model.script, None):
                self.collector.add_line(finding_kinds.OTHER_LANGUAGE, row.file, row.line, row.text)


def _visible(text: str) -> str:
    """Remove characters that cannot be seen: they have findings of their own."""
    return text if text.isprintable() else "".join(filter(str.isprintable, text))


def _main_script(text: str) -> str | None:
    """Return the script of most letters of a text. Another one than that of the side is another finding."""
    scripts = Counter(script for char in text if (script := script_of(char)))
    return scripts.most_common(1)[0][0] if scripts else None


class _SideModel:
    """Frequent words and a character model of the lines of one side."""

    def __init__(self, texts: Sequence[str]) -> None:
        words = [text.lower().split() for text in texts]
        frequencies = Counter(word for line in words for word in {*line})
        self.common = {word for word, count in frequencies.items() if count >= COMMON_WORD_SHARE * len(texts)}
        num_words = max(1, sum(map(len, words)))
        self.coverage = sum(word in self.common for line in words for word in line) / num_words
        self.script = _main_script("".join(texts[: FIT_LINES // 50]))
        growth = math.log10(max(len(texts), 1000) / 1000)
        self.threshold = min(MIN_SCORE + growth, MAX_SCORE) if self.coverage >= MIN_COVERAGE else math.inf
        self.characters = _CharacterModel(texts)
        means, lengths = self.characters.mean_log_probabilities(texts, left_out=1)
        self.median = float(np.median(means))
        self.deviation = 1.0
        self.deviation = max(1e-6, 1.4826 * float(np.median(np.abs(self._z_scores(means, lengths)))))
        self.fit_scores = self._word_scores(texts) - self._z_scores(means, lengths)

    def scores(self, texts: Sequence[str]) -> FloatArray:
        """Return how foreign texts are that are not in the model."""
        if not texts:
            return np.zeros(0)
        means, lengths = self.characters.mean_log_probabilities(texts, left_out=0)
        return self._word_scores(texts) - self._z_scores(means, lengths)

    def _z_scores(self, means: FloatArray, lengths: IntArray) -> FloatArray:
        return (means - self.median) * np.sqrt(np.minimum(lengths, MAX_CHARACTERS)) / self.deviation

    def _word_scores(self, texts: Sequence[str]) -> FloatArray:
        """Return the log-odds of the number of frequent words, in another language against this one."""
        foreign = self.coverage * FOREIGN_COVERAGE
        if not 0 < self.coverage < 1:
            return np.zeros(len(texts))
        present, absent = math.log(foreign / self.coverage), math.log((1 - foreign) / (1 - self.coverage))
        result = np.empty(len(texts))
        for index, text in enumerate(texts):
            words = text.lower().split()
            count = sum(word in self.common for word in words)
            odds = count * present + (len(words) - count) * absent
            result[index] = odds * min(1.0, MAX_WORDS / max(1, len(words)))
        return result


class _CharacterModel:
    """A trigram model of characters that backs off to bigrams and single characters."""

    def __init__(self, texts: Sequence[str]) -> None:
        joined = _join(texts)
        self.ids: IntArray = np.full(0x110000, NUM_CHARACTERS - 1, dtype=np.int64)
        for index, (char, _) in enumerate(Counter(joined).most_common(NUM_CHARACTERS - 1)):
            self.ids[ord(char)] = index
        first, second, third, _, _ = self._trigrams(texts)
        size = NUM_CHARACTERS
        self.trigrams = np.bincount((first * size + second) * size + third, minlength=size**3)
        self.contexts = np.bincount(first * size + second, minlength=size**2)
        self.bigrams = np.bincount(second * size + third, minlength=size**2)
        self.middles = np.bincount(second, minlength=size)
        self.singles = np.bincount(third, minlength=size)

    def mean_log_probabilities(self, texts: Sequence[str], *, left_out: int) -> tuple[FloatArray, IntArray]:
        """Return the mean log-probability of the characters of each text, and their number.

        `left_out` is subtracted from all counts: 1 for texts that are in the model.
        """
        first, second, third, line, lengths = self._trigrams(texts)
        size = NUM_CHARACTERS

        def count(counts: IntArray, index: IntArray) -> FloatArray:
            return np.maximum(counts[index] - left_out, 0).astype(float)

        p = (count(self.singles, third) + 0.5) / (self.singles.sum() + 0.5 * size)
        p = (count(self.bigrams, second * size + third) + SMOOTHING * p) / (count(self.middles, second) + SMOOTHING)
        trigrams = count(self.trigrams, (first * size + second) * size + third)
        p = (trigrams + SMOOTHING * p) / (count(self.contexts, first * size + second) + SMOOTHING)
        sums = np.bincount(line, weights=np.log(p), minlength=len(texts))
        return sums / np.maximum(lengths, 1), lengths

    def _trigrams(self, texts: Sequence[str]) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
        """Return the ids of all trigrams within lines, the line of each, and their number by line."""
        codes = np.frombuffer(_join(texts).encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
        ids = self.ids[codes]
        ends = np.flatnonzero(codes == ord("\n"))
        widths = np.diff(ends, prepend=-1)
        line = np.repeat(np.arange(len(texts)), widths)
        inside = np.flatnonzero(line[:-2] == line[2:])
        inside = inside[codes[inside + 2] != ord("\n")]
        line = line[inside]
        return ids[inside], ids[inside + 1], ids[inside + 2], line, np.bincount(line, minlength=len(texts))


def _join(texts: Sequence[str]) -> str:
    """Join texts, each with two spaces before it and one behind it."""
    return "".join(f"  {' '.join(text.lower().split())} \n" for text in texts)
