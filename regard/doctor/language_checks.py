"""Check for pairs whose sides are swapped, or in the same language."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector
from regard.doctor.split_reader import SplitBatch

FIT_PAIRS, MIN_COUNT = 5000, 4
MIN_LOG_ODDS = 4.0
"""Minimum log-odds for a text to count as one of the other side."""


class LanguageCheck:
    """Pairs whose sides are swapped, or in the same language, by words that occur on one side only.

    The log-odds of the words are estimated on the first pairs. Both sides must have words separated by spaces.
    """

    def __init__(self, collector: FindingCollector) -> None:
        self.collector = collector
        self.pending: list[SplitBatch] = []
        self.pending_rows = 0
        self.reported: set[tuple[Path, int]] = set()
        """The file of the source and the line of each pair that was found."""
        self.log_odds: dict[str, float] | None = None
        """Log-odds of each word on the source side against the target side."""

    def update(self, batch: SplitBatch) -> None:
        """Check a batch of pairs. The first batches are buffered until the log-odds are estimated."""
        if self.log_odds is None:
            self.pending.append(batch)
            self.pending_rows += len(batch.lines)
            if self.pending_rows < FIT_PAIRS:
                return
            self._fit()
            return
        self._classify(batch)

    def finish(self) -> None:
        """Check the batches that are still buffered."""
        if self.log_odds is None and self.pending:
            self._fit()

    def _fit(self) -> None:
        source, target = Counter[str](), Counter[str]()
        for batch in self.pending:
            for counts, texts in ((source, batch.fields["source"]), (target, batch.fields["target"])):
                counts.update(word for text in texts for word in set(text.lower().split()))
        self.log_odds = {
            word: max(-3.0, min(3.0, math.log((source[word] + 0.5) / (target[word] + 0.5))))
            for word in source | target
            if source[word] + target[word] >= MIN_COUNT
        }
        for batch in self.pending:
            self._classify(batch)
        self.pending = []

    def _classify(self, batch: SplitBatch) -> None:
        sources, targets = batch.fields["source"], batch.fields["target"]
        for line, source, target in zip(batch.lines, sources, targets, strict=True):
            if source == target:
                continue
            if self._log_odds(source) > 0 and self._log_odds(target) < 0:
                continue  # the usual case
            source_odds, target_odds = self._confident_log_odds(source), self._confident_log_odds(target)
            if abs(source_odds) > MIN_LOG_ODDS and abs(target_odds) > MIN_LOG_ODDS:
                self.reported.add((batch.file, line))
            if source_odds < -MIN_LOG_ODDS and target_odds > MIN_LOG_ODDS:
                self.collector.add_line(finding_kinds.SWAPPED, batch.file, line, f"{source} ||| {target}")
            elif source_odds < -MIN_LOG_ODDS and target_odds < -MIN_LOG_ODDS:
                self.collector.add_line(finding_kinds.ONE_LANGUAGE, batch.files["source"], line, source)
            elif source_odds > MIN_LOG_ODDS and target_odds > MIN_LOG_ODDS:
                self.collector.add_line(finding_kinds.ONE_LANGUAGE, batch.files["target"], line, target)

    def _log_odds(self, text: str) -> float:
        log_odds = self.log_odds or {}
        return sum([log_odds[word] for word in text.lower().split() if word in log_odds], start=0.0)

    def _confident_log_odds(self, text: str) -> float:
        """Sum of the log-odds of the words of a text; 0 unless at least two clear words agree."""
        assert self.log_odds is not None
        values = [value for word in text.lower().split() if (value := self.log_odds.get(word))]
        clear = [value for value in values if abs(value) > 1]
        # A single name or loanword is no evidence: 80% of the clear words must agree.
        agree = sum(value > 0 for value in clear) if sum(values) > 0 else sum(value < 0 for value in clear)
        return sum(values) if clear and agree >= 0.8 * len(clear) and agree >= 2 else 0.0
