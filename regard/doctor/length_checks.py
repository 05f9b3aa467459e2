"""How long texts are, what would be cut, and what the tokenizer does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regard.doctor import finding_kinds
from regard.doctor.finding import Ledger, Severity
from regard.doctor.tolerant_reader import TEXTS, Rows
from regard.tokenization.tokenizer import Tokenizer

CAP = 1 << 16
"""Longer texts count as this long in the histogram."""


@dataclass
class Spread:
    """The lengths of one side of one file."""

    file: str
    side: str
    unit: str
    """"words" or "tokens"."""
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """How many texts have each length."""
    tokens: int = 0
    unknown: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, lengths: Sequence[int]) -> None:
        """Some texts more."""
        more = np.bincount(np.minimum(lengths, CAP), minlength=len(self.counts))
        more[: len(self.counts)] += self.counts
        self.counts = more

    @property
    def longest(self) -> int:
        """The greatest length."""
        return int(np.flatnonzero(self.counts)[-1]) if self.counts.any() else 0

    def quantile(self, share: float) -> int:
        """The length that this share of the texts does not exceed."""
        total = np.cumsum(self.counts)
        return int(np.searchsorted(total, share * total[-1])) if total[-1] else 0

    def over(self, length: int) -> int:
        """How many texts are longer."""
        return int(self.counts[length + 1 :].sum())

    def histogram(self, bins: int = 10) -> list[tuple[int, int, int]]:
        """First and last length of each bin, and how many texts fall into it. The last bin takes the rare long ones."""
        width = max(1, -(-max(self.quantile(0.99), 1) // (bins - 1)))
        found: list[tuple[int, int, int]] = []
        for low in range(1, self.longest + 1, width):
            last = len(found) == bins - 1
            high = self.longest if last else min(low + width - 1, self.longest)
            found.append((low, high, int(self.counts[low : high + 1].sum())))
            if last:
                break
        return found


class Lengths:
    """Counts words, or tokens if there is a tokenizer, and notes what a length would cut."""

    def __init__(self, ledger: Ledger, tokenizer: Tokenizer | None, length: int | None) -> None:
        self.ledger, self.tokenizer = ledger, tokenizer
        self.length = length if length is not None or tokenizer is None else tokenizer.longest
        self.spreads: dict[tuple[str, str, str], Spread] = {}

    def see(self, rows: Rows) -> None:
        """Some rows more."""
        for side in (*TEXTS, "words"):
            if side not in rows.fields:
                continue
            texts = rows.fields[side]
            if side == "words":
                texts = [" ".join(words) for words in texts]
            file = rows.files.get(side, rows.file)
            unit = "words" if self.tokenizer is None else "tokens"
            spread = self.spreads.setdefault((rows.split, str(file), side), Spread(str(file), side, unit))
            lengths = self._measure(spread, side, texts)
            spread.add(lengths)
            if self.length is not None:
                self._cut(spread, rows, texts, lengths)

    def _measure(self, spread: Spread, side: str, texts: Sequence[str]) -> list[int]:
        if self.tokenizer is None:
            return [len(text.split()) for text in texts]
        tokenizer = self.tokenizer.target if side == "target" else self.tokenizer
        rows = tokenizer.ids_of(texts)
        unknown = tokenizer.special.unknown
        for text, ids in zip(texts, rows, strict=True) if unknown is not None else ():
            spread.tokens += len(ids)
            if unknown in ids:
                spread.unknown += ids.count(unknown)
                if len(spread.examples) < self.ledger.examples:
                    spread.examples.append(text[:72])
        return [len(ids) for ids in rows]

    def _cut(self, spread: Spread, rows: Rows, texts: Sequence[str], lengths: Sequence[int]) -> None:
        assert self.length is not None
        if max(lengths, default=0) <= self.length:
            return
        for line, text, length in zip(rows.lines, texts, lengths, strict=True):
            if length > self.length:
                self.ledger.note(finding_kinds.TRUNCATION, spread.file, line, f"{length} {spread.unit}: {text}")

    def finish(self) -> None:
        """Put shares to what was noted."""
        for spread in self.spreads.values():
            if self.length is not None and spread.over(self.length):
                least = ", which is even more tokens" if spread.unit == "words" else ""
                said = f"{{lines}} longer than {self.length} {spread.unit}{least}: they would be cut"
                self.ledger.explain(finding_kinds.TRUNCATION, spread.file, said)
            if spread.unknown:
                self._unknown(spread)

    def _unknown(self, spread: Spread) -> None:
        share = spread.unknown / spread.tokens
        severity = Severity.STOP if share > 0.2 else Severity.WARN if share > 0.01 else Severity.NOTE
        said = f"{spread.unknown:,} of {spread.tokens:,} tokens ({share:.2%}) of the {spread.side} side are unknown"
        self.ledger.say(finding_kinds.UNKNOWN, spread.file, said, examples=spread.examples, severity=severity)
