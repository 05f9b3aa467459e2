"""Checks of labels and scores."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.doctor import finding_kinds
from regard.doctor.finding import Kind, Ledger
from regard.doctor.text_checks import blank
from regard.doctor.tolerant_reader import Rows, Split

MOST = 5000
"""No set of labels is larger; a column with more is something else."""


@dataclass
class Seen:
    """A label in a set: how often, and on which lines first."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    file: str = ""


class Labels:
    """Which labels there are, how often, and which look wrong."""

    def __init__(self, ledger: Ledger, called: str = "label") -> None:
        self.ledger, self.called = ledger, called
        self.sets: dict[Split, dict[str, Seen]] = defaultdict(dict)

    def see(self, rows: Rows) -> None:
        """Some rows more."""
        met = defaultdict[str, list[int]](list)
        for line, label in zip(rows.lines, rows.fields["label"], strict=True):
            if blank(label):
                self.ledger.note(finding_kinds.EMPTY_LABEL, rows.file, line)
            else:
                met[label].append(line)
        for label, lines in met.items():
            self.add(rows.split, str(rows.file), label, lines)

    def add(self, split: Split, file: str, label: str, lines: Sequence[int]) -> None:
        """A label was met on these lines."""
        known = self.sets[split]
        if label not in known and len(known) > MOST:
            return
        seen = known.setdefault(label, Seen(file=file))
        seen.count += len(lines)
        seen.lines = sorted([*seen.lines, *lines[: self.ledger.shown]])[: self.ledger.shown]

    def counts(self) -> dict[str, dict[str, int]]:
        """How often each label was met in each set, the most frequent first."""
        return {
            split.value: {
                label: seen.count for label, seen in sorted(known.items(), key=lambda one: (-one[1].count, one[0]))
            }
            for split, known in self.sets.items()
        }

    def finish(self) -> None:
        """Look at all labels together."""
        for split, known in self.sets.items():
            total = sum(seen.count for seen in known.values())
            if len(known) > 20 and len(known) > total / 2:
                file = next(iter(known.values())).file
                said = f"there are {len(known):,} different {self.called}s in {total:,} rows"
                self.ledger.say(finding_kinds.MANY_LABELS, file, said, examples=list(known)[:3])
            elif split is Split.TRAIN:
                self._train(known, total)
        self._similar()
        self._new()

    def _train(self, known: dict[str, Seen], total: int) -> None:
        if len(known) == 1:
            label, seen = next(iter(known.items()))
            self.ledger.say(
                finding_kinds.ONE_LABEL, seen.file, f"every row has the {self.called} {label!r}", lines=seen.lines
            )
            return
        even = total / len(known)
        odd = self._variants(known)  # to be written otherwise rather than collected
        few = max(2, min(10, even / 10))
        rare = {label: seen for label, seen in known.items() if seen.count < few and label not in odd}
        if rare and even >= 5:
            self._say_labels(finding_kinds.RARE_LABEL, rare, f"{self.called}s with very few examples")
        self._gap(known)

    def _gap(self, known: dict[str, Seen]) -> None:
        if not all(label.isdecimal() and len(label) < 4 for label in known):
            return
        numbers = {int(label) for label in known}
        gaps = [number for number in range(min(numbers), max(numbers)) if number not in numbers]
        if gaps:
            file = next(iter(known.values())).file
            said = f"the {self.called}s are numbers from {min(numbers)} to {max(numbers)}, without {_some(gaps)}"
            self.ledger.say(finding_kinds.LABEL_GAP, file, said, lines=known[str(max(numbers))].lines)

    def _variants(self, known: dict[str, Seen]) -> dict[str, Seen]:
        """The labels that differ from a more frequent one in case or spaces only."""
        alike = defaultdict[str, list[str]](list)
        for label in known:
            alike["".join(label.casefold().split())].append(label)
        odd: dict[str, Seen] = {}
        for group in alike.values():
            usual = max(group, key=lambda label: known[label].count)
            odd |= {label: known[label] for label in group if label != usual}
        return odd

    def _similar(self) -> None:
        for known in self.sets.values():
            if odd := self._variants(known):
                self._say_labels(
                    finding_kinds.SIMILAR_LABELS, odd, f"{self.called}s that differ from others only in case or spaces"
                )

    def _new(self) -> None:
        train = self.sets.get(Split.TRAIN)
        for split, known in self.sets.items():
            new = {label: seen for label, seen in known.items() if train and label not in train}
            if new:
                self._say_labels(
                    finding_kinds.NEW_LABEL, new, f"{self.called}s in {split} that the training data does not have"
                )

    def _say_labels(self, kind: Kind, found: dict[str, Seen], said: str) -> None:
        for file in {seen.file for seen in found.values()}:
            mine = {label: seen for label, seen in found.items() if seen.file == file}
            lines = sorted(line for seen in mine.values() for line in seen.lines)
            told = ", ".join(f"{label!r} ({seen.count})" for label, seen in list(mine.items())[:20])
            count = sum(seen.count for seen in mine.values())
            self.ledger.say(kind, file, f"{said}: {told}", lines=lines, count=count)


class Scores:
    """Numbers that say how alike two texts are."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.values: dict[str, tuple[array[float], array[int]]] = {}

    def see(self, rows: Rows) -> None:
        """Some rows more."""
        values, lines = self.values.setdefault(str(rows.file), (array("f"), array("i")))
        for line, said in zip(rows.lines, rows.fields["label"], strict=True):
            number = _number(said)
            if number is None:
                self.ledger.note(finding_kinds.NO_NUMBER, rows.file, line, repr(said))
            else:
                values.append(number)
                lines.append(line)

    def finish(self) -> None:
        """Say which scores are far from the others: further beyond the middle 98% than that is wide."""
        for file, (values, lines) in self.values.items():
            scores = np.asarray(values)
            if len(scores) < 20:
                continue
            low, high = np.quantile(scores, [0.05, 0.95])
            width = max(float(high - low), 1e-6)
            for place in np.flatnonzero((scores < low - width) | (scores > high + width)):
                said = f"{scores[place]:g}, most are between {low:g} and {high:g}"
                self.ledger.note(finding_kinds.OUT_OF_RANGE, file, int(lines[place]), said)


def _number(said: str) -> float | None:
    try:
        number = float(said)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (" …" if len(numbers) > 5 else "")
