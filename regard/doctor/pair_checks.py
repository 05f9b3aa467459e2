"""Checks of pairs: sides that are the same, swapped, or far too long for each other."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from regard.doctor import finding_kinds
from regard.doctor.finding import Ledger
from regard.doctor.tolerant_reader import Rows

LONG = 10_000
"""No sentence has so many characters."""
SLACK, ABSURD = 15, 3.0
"""A side may be three times as long as the other side makes one expect, and some characters more."""


@dataclass
class _Lengths:
    """Of one pair of files: the line of each pair, and the characters on either side."""

    lines: array[int] = field(default_factory=lambda: array("i"))
    source: array[int] = field(default_factory=lambda: array("i"))
    target: array[int] = field(default_factory=lambda: array("i"))
    same: int = 0


class Pairs:
    """Sides that are the same text, and sides whose lengths do not fit."""

    def __init__(self, ledger: Ledger, summaries: bool) -> None:
        self.ledger, self.summaries = ledger, summaries
        self.lengths: dict[Path, _Lengths] = defaultdict(_Lengths)

    def see(self, rows: Rows) -> None:
        """Some pairs more."""
        sources, targets = rows.fields["source"], rows.fields["target"]
        seen = self.lengths[rows.file]
        seen.lines.extend(rows.lines)
        seen.source.extend(map(len, sources))
        seen.target.extend(map(len, targets))
        if not self.summaries:
            self._long(rows)
        for line, source, target in zip(rows.lines, sources, targets, strict=True):
            if source == target and any(map(str.isalpha, source)):
                seen.same += 1
                self.ledger.note(finding_kinds.IDENTICAL, rows.file, line, source)
            elif self.summaries and len(target) >= len(source):
                self.ledger.note(finding_kinds.LONG_SUMMARY, rows.file, line, target)

    def _long(self, rows: Rows) -> None:
        for side in ("source", "target"):
            if max(map(len, rows.fields[side])) > LONG:
                for line, text in zip(rows.lines, rows.fields[side], strict=True):
                    if len(text) > LONG:
                        self.ledger.note(finding_kinds.LONG_LINE, rows.files[side], line, text)

    def finish(self) -> None:
        """Look at each pair of files as a whole."""
        for file, seen in self.lengths.items():
            if seen.same > 0.9 * len(seen.lines) and len(seen.lines) > 1:
                self.ledger.forget(finding_kinds.IDENTICAL, file)
                said = f"{seen.same:,} of {len(seen.lines):,} lines are the same on both sides"
                self.ledger.say(finding_kinds.SAME_FILE, file, said)
            elif not self.summaries:
                self._ratios(file, seen)

    def _ratios(self, file: Path, seen: _Lengths) -> None:
        source = np.asarray(seen.source, dtype=float)
        target = np.asarray(seen.target, dtype=float)
        usual = float(np.median(target / source)) if len(source) >= 20 else 1.0
        ratio = (target + SLACK * min(usual, 1)) / (source * usual + SLACK * min(usual, 1))
        for place in np.flatnonzero((ratio > ABSURD) | (ratio < 1 / ABSURD)):
            said = f"{int(source[place])} characters against {int(target[place])} (usual: 1 to {usual:.2f})"
            self.ledger.note(finding_kinds.RATIO, file, int(seen.lines[place]), said)
