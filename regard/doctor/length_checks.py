"""Length distributions, truncation and unknown tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector, Severity
from regard.doctor.split_reader import TEXT_FIELDS, SplitBatch
from regard.tokenization.tokenizer import Tokenizer

MAX_HISTOGRAM_LENGTH = 1 << 16
"""Longer texts count with this length."""


@dataclass
class LengthDistribution:
    """Distribution of the text lengths of one side of a file."""

    file: str
    side: str
    unit: str
    """"words" or "tokens"."""
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """Number of texts of each length."""
    num_tokens: int = 0
    num_unknown: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, lengths: Sequence[int]) -> None:
        """Add the lengths of more texts."""
        counts = np.bincount(np.minimum(lengths, MAX_HISTOGRAM_LENGTH), minlength=len(self.counts))
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    @property
    def longest(self) -> int:
        """The maximum length."""
        return int(np.flatnonzero(self.counts)[-1]) if self.counts.any() else 0

    def quantile(self, fraction: float) -> int:
        """The length that this fraction of the texts does not exceed."""
        total = np.cumsum(self.counts)
        return int(np.searchsorted(total, fraction * total[-1])) if total[-1] else 0

    def count_over(self, length: int) -> int:
        """Number of texts longer than `length`."""
        return int(self.counts[length + 1 :].sum())

    def histogram(self, bins: int = 10) -> list[tuple[int, int, int]]:
        """First length, last length and number of texts of each bin. The last bin includes the longest texts."""
        width = max(1, -(-max(self.quantile(0.99), 1) // (bins - 1)))
        result: list[tuple[int, int, int]] = []
        for low in range(1, self.longest + 1, width):
            last = len(result) == bins - 1
            high = self.longest if last else min(low + width - 1, self.longest)
            result.append((low, high, int(self.counts[low : high + 1].sum())))
            if last:
                break
        return result


class LengthCheck:
    """Counts words, or tokens with a tokenizer, and adds findings for texts that would be truncated."""

    def __init__(self, collector: FindingCollector, tokenizer: Tokenizer | None, max_length: int | None) -> None:
        self.collector, self.tokenizer = collector, tokenizer
        self.max_length = max_length if max_length is not None or tokenizer is None else tokenizer.model_max_length
        self.distributions: dict[tuple[str, str, str], LengthDistribution] = {}

    def update(self, batch: SplitBatch) -> None:
        """Measure the texts of a batch."""
        for side in (*TEXT_FIELDS, "words"):
            if side not in batch.fields:
                continue
            texts = batch.fields[side]
            if side == "words":
                texts = [" ".join(words) for words in texts]
            file = batch.files.get(side, batch.file)
            unit = "words" if self.tokenizer is None else "tokens"
            distribution = self.distributions.setdefault(
                (batch.split, str(file), side), LengthDistribution(str(file), side, unit)
            )
            lengths = self._measure(distribution, side, texts)
            distribution.add(lengths)
            if self.max_length is not None:
                self._check_truncation(distribution, batch, texts, lengths)

    def _measure(self, distribution: LengthDistribution, side: str, texts: Sequence[str]) -> list[int]:
        if self.tokenizer is None:
            return [len(text.split()) for text in texts]
        tokenizer = self.tokenizer.target if side == "target" else self.tokenizer
        id_lists = tokenizer.encode_batch_ids(texts)
        unknown = tokenizer.special_ids.unk
        for text, ids in zip(texts, id_lists, strict=True) if unknown is not None else ():
            distribution.num_tokens += len(ids)
            if unknown in ids:
                distribution.num_unknown += ids.count(unknown)
                if len(distribution.examples) < self.collector.max_examples:
                    distribution.examples.append(text[:72])
        return [len(ids) for ids in id_lists]

    def _check_truncation(
        self, distribution: LengthDistribution, batch: SplitBatch, texts: Sequence[str], lengths: Sequence[int]
    ) -> None:
        assert self.max_length is not None
        if max(lengths, default=0) <= self.max_length:
            return
        for line, text, length in zip(batch.lines, texts, lengths, strict=True):
            if length > self.max_length:
                self.collector.add_line(
                    finding_kinds.TRUNCATION, distribution.file, line, f"{length} {distribution.unit}: {text}"
                )

    def finish(self) -> None:
        """Add the maximum length to the messages, and findings for unknown tokens."""
        for distribution in self.distributions.values():
            if self.max_length is not None and distribution.count_over(self.max_length):
                hint = " (and even more tokens)" if distribution.unit == "words" else ""
                message = f"{{lines}} longer than {self.max_length} {distribution.unit}{hint}: they would be truncated"
                self.collector.set_message(finding_kinds.TRUNCATION, distribution.file, message)
            if distribution.num_unknown:
                self._add_unknown(distribution)

    def _add_unknown(self, distribution: LengthDistribution) -> None:
        unknown, total = distribution.num_unknown, distribution.num_tokens
        fraction = unknown / total
        severity = Severity.STOP if fraction > 0.2 else Severity.WARN if fraction > 0.01 else Severity.NOTE
        message = f"{unknown:,} of {total:,} tokens ({fraction:.2%}) of the {distribution.side} side are unknown"
        self.collector.add_file(
            finding_kinds.UNKNOWN, distribution.file, message, examples=distribution.examples, severity=severity
        )
