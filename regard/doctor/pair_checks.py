"""Checks of text pairs: identical sides, implausible length ratios, long lines and summaries."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector
from regard.doctor.line_alignment import Misalignment
from regard.doctor.split_reader import SplitBatch

MAX_LINE_CHARACTERS = 10_000
"""No sentence is longer than this."""
RATIO_SLACK, MAX_LENGTH_RATIO = 15, 3.0
"""A side may have three times its expected length, plus some characters."""


@dataclass
class _PairLengths:
    """For one pair of files: the line of each pair, and the number of characters of its sides."""

    lines: array[int] = field(default_factory=lambda: array("i"))
    source: array[int] = field(default_factory=lambda: array("i"))
    target: array[int] = field(default_factory=lambda: array("i"))
    num_identical: int = 0


class PairCheck:
    """Identical sides, implausible length ratios, very long lines, and summaries that are too long."""

    def __init__(self, collector: FindingCollector, summaries: bool) -> None:
        self.collector, self.summaries = collector, summaries
        self.lengths: dict[Path, _PairLengths] = defaultdict(_PairLengths)
        self.misaligned: dict[Path, Misalignment] = {}
        """For each pair of files, by the source: where their lines are not aligned."""

    def update(self, batch: SplitBatch) -> None:
        """Check a batch of pairs."""
        sources, targets = batch.fields["source"], batch.fields["target"]
        lengths = self.lengths[batch.file]
        lengths.lines.extend(batch.lines)
        lengths.source.extend(map(len, sources))
        lengths.target.extend(map(len, targets))
        if not self.summaries:
            self._check_long_lines(batch)
        for line, source, target in zip(batch.lines, sources, targets, strict=True):
            if source == target and any(map(str.isalpha, source)):
                lengths.num_identical += 1
                self.collector.add_line(finding_kinds.IDENTICAL, batch.file, line, source)
            elif self.summaries and len(target) >= len(source):
                self.collector.add_line(finding_kinds.LONG_SUMMARY, batch.file, line, target)

    def _check_long_lines(self, batch: SplitBatch) -> None:
        for side in ("source", "target"):
            if max(map(len, batch.fields[side])) > MAX_LINE_CHARACTERS:
                for line, text in zip(batch.lines, batch.fields[side], strict=True):
                    if len(text) > MAX_LINE_CHARACTERS:
                        self.collector.add_line(finding_kinds.LONG_LINE, batch.files[side], line, text)

    def finish(self) -> None:
        """Check each pair of files as a whole."""
        for file, lengths in self.lengths.items():
            if lengths.num_identical > 0.9 * len(lengths.lines) and len(lengths.lines) > 1:
                self.collector.discard(finding_kinds.IDENTICAL, file)
                message = f"{lengths.num_identical:,} of {len(lengths.lines):,} lines are identical on both sides"
                self.collector.add_file(finding_kinds.SAME_FILE, file, message)
            elif not self.summaries:
                self._check_length_ratios(file, lengths)

    def _check_length_ratios(self, file: Path, lengths: _PairLengths) -> None:
        source = np.asarray(lengths.source, dtype=float)
        target = np.asarray(lengths.target, dtype=float)
        median = float(np.median(target / source)) if len(source) >= 20 else 1.0
        slack = RATIO_SLACK * min(median, 1)
        ratio = (target + slack) / (source * median + slack)
        misaligned, hidden = self.misaligned.get(file), 0
        for index in np.flatnonzero((ratio > MAX_LENGTH_RATIO) | (ratio < 1 / MAX_LENGTH_RATIO)):
            if misaligned is not None and misaligned.contains(int(lengths.lines[index])):
                hidden += 1
                continue
            message = f"{int(source[index])} and {int(target[index])} characters (median ratio 1 to {median:.2f})"
            self.collector.add_line(finding_kinds.RATIO, file, int(lengths.lines[index]), message)
        if misaligned is not None and hidden:
            noun = "pair" if hidden == 1 else "pairs"
            verb = "is" if hidden == 1 else "are"
            self.collector.extend_message(
                misaligned.kind, file, f"; {hidden:,} {noun} of implausible length ratio there {verb} not listed"
            )
