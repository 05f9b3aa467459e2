"""Checks of labels and scores."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector, FindingKind
from regard.doctor.split_reader import Split, SplitBatch

MAX_LABELS = 5000
"""A column with more distinct values is not a label column; further values are not counted."""


@dataclass
class LabelCount:
    """Count of a label in a split, and the first lines on which it occurs."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    file: str = ""


LabelCounts = dict[str, LabelCount]
"""Counts by label."""


class LabelCheck:
    """Counts labels and checks for rare, similar, unseen and missing ones."""

    def __init__(self, collector: FindingCollector, noun: str = "label") -> None:
        self.collector, self.noun = collector, noun
        self.by_split: dict[Split, LabelCounts] = defaultdict(dict)

    def update(self, batch: SplitBatch) -> None:
        """Count the labels of a batch."""
        lines_by_label = defaultdict[str, list[int]](list)
        for line, label in zip(batch.lines, batch.fields["label"], strict=True):
            lines_by_label[label].append(line)
        for label, lines in lines_by_label.items():
            self.add(batch.split, str(batch.file), label, lines)

    def add(self, split: Split, file: str, label: str, lines: Sequence[int]) -> None:
        """Count a label on these lines."""
        labels, max_lines = self.by_split[split], self.collector.max_lines
        if label not in labels and len(labels) > MAX_LABELS:
            return
        entry = labels.setdefault(label, LabelCount(file=file))
        entry.count += len(lines)
        entry.lines = sorted([*entry.lines, *lines[:max_lines]])[:max_lines]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the count of each label by split, most frequent first."""
        return {
            split.value: {
                label: entry.count
                for label, entry in sorted(labels.items(), key=lambda item: (-item[1].count, item[0]))
            }
            for split, labels in self.by_split.items()
        }

    def finish(self) -> None:
        """Check the labels of all splits."""
        for split, labels in self.by_split.items():
            total = sum(entry.count for entry in labels.values())
            if len(labels) > 20 and len(labels) > total / 2:
                file = next(iter(labels.values())).file
                message = f"{len(labels):,} distinct {self.noun}s in {total:,} rows"
                self.collector.add_file(finding_kinds.MANY_LABELS, file, message, examples=list(labels)[:3])
            elif split is Split.TRAIN:
                self._check_train(labels, total)
        self._check_similar()
        self._check_unseen()

    def _check_train(self, labels: LabelCounts, total: int) -> None:
        if len(labels) == 1:
            label, entry = next(iter(labels.items()))
            self.collector.add_file(
                finding_kinds.ONE_LABEL, entry.file, f"every row has the {self.noun} {label!r}", lines=entry.lines
            )
            return
        mean = total / len(labels)
        variants = self._variants(labels)  # misspelt, not rare
        threshold = max(2, min(10, mean / 10))
        rare = {label: entry for label, entry in labels.items() if entry.count < threshold and label not in variants}
        if rare and mean >= 5:
            self._add_labels(finding_kinds.RARE_LABEL, rare, f"{self.noun}s with very few examples")
        self._check_gap(labels)

    def _check_gap(self, labels: LabelCounts) -> None:
        if not all(label.isdecimal() and len(label) < 4 for label in labels):
            return
        numbers = {int(label) for label in labels}
        gaps = [number for number in range(min(numbers), max(numbers)) if number not in numbers]
        if gaps:
            file = next(iter(labels.values())).file
            message = f"the {self.noun}s are numbers from {min(numbers)} to {max(numbers)}, without {_first_few(gaps)}"
            self.collector.add_file(finding_kinds.LABEL_GAP, file, message, lines=labels[str(max(numbers))].lines)

    def _variants(self, labels: LabelCounts) -> LabelCounts:
        """Return the labels that differ from a more frequent one only in case or spaces."""
        groups = defaultdict[str, list[str]](list)
        for label in labels:
            groups["".join(label.casefold().split())].append(label)
        variants: LabelCounts = {}
        for group in groups.values():
            most_frequent = max(group, key=lambda label: labels[label].count)
            variants |= {label: labels[label] for label in group if label != most_frequent}
        return variants

    def _check_similar(self) -> None:
        for labels in self.by_split.values():
            if variants := self._variants(labels):
                message = f"{self.noun}s that differ from others only in case or spaces"
                self._add_labels(finding_kinds.SIMILAR_LABELS, variants, message)

    def _check_unseen(self) -> None:
        train = self.by_split.get(Split.TRAIN)
        for split, labels in self.by_split.items():
            unseen = {label: entry for label, entry in labels.items() if train and label not in train}
            if unseen:
                message = f"{self.noun}s in {split} that are not in the training data"
                self._add_labels(finding_kinds.NEW_LABEL, unseen, message)

    def _add_labels(self, kind: FindingKind, labels: LabelCounts, message: str) -> None:
        for file in {entry.file for entry in labels.values()}:
            in_file = {label: entry for label, entry in labels.items() if entry.file == file}
            lines = sorted(line for entry in in_file.values() for line in entry.lines)
            names = ", ".join(f"{label!r} ({entry.count})" for label, entry in list(in_file.items())[:20])
            count = sum(entry.count for entry in in_file.values())
            self.collector.add_file(kind, file, f"{message}: {names}", lines=lines, count=count)


class ScoreCheck:
    """Similarity scores of text pairs."""

    def __init__(self, collector: FindingCollector) -> None:
        self.collector = collector
        self.values: dict[str, tuple[array[float], array[int]]] = {}
        """Scores and their lines, by file."""

    def update(self, batch: SplitBatch) -> None:
        """Collect the scores of a batch."""
        values, lines = self.values.setdefault(str(batch.file), (array("f"), array("i")))
        values.extend(batch.fields["label"])
        lines.extend(batch.lines)

    def finish(self) -> None:
        """Add outliers: scores further outside the middle 90% than the width of that range."""
        for file, (values, lines) in self.values.items():
            scores = np.asarray(values)
            if len(scores) < 20:
                continue
            low, high = np.quantile(scores, [0.05, 0.95])
            width = max(float(high - low), 1e-6)
            for index in np.flatnonzero((scores < low - width) | (scores > high + width)):
                message = f"{scores[index]:g}, most are between {low:g} and {high:g}"
                self.collector.add_line(finding_kinds.OUT_OF_RANGE, file, int(lines[index]), message)


def _first_few(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (" …" if len(numbers) > 5 else "")
