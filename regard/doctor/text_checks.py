"""Checks of all kinds of text: empty texts, and text style that differs from the training data."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector, excerpt
from regard.doctor.split_reader import TEXT_FIELDS, Split, SplitBatch

SAMPLE_SIZE = 5000
ATTACHED_PUNCTUATION = re.compile(r"\w[.,;:!?](?:\s|$)")
SEPARATED_PUNCTUATION = re.compile(r"\s[.,;:!?](?:\s|$)")


def is_blank(text: str) -> bool:
    """Whether a text is empty or has only whitespace."""
    return not text or text.isspace()


class EmptyTextFilter:
    """Removes rows with empty texts and adds findings for them, so that the other checks do not process them."""

    def __init__(self, collector: FindingCollector, blank_lines_separate: bool) -> None:
        self.collector, self.blank_lines_separate = collector, blank_lines_separate

    def filter(self, batch: SplitBatch) -> SplitBatch:
        """Return the rows with text on every side."""
        names = [name for name in TEXT_FIELDS if name in batch.fields and name != "pair"]
        if all(all(batch.fields[name]) and not any(map(str.isspace, batch.fields[name])) for name in names):
            return batch
        empty = {name: [is_blank(text) for text in batch.fields[name]] for name in names}
        if not self.blank_lines_separate:  # in plain text an empty line separates paragraphs
            self._add(batch, names, empty)
        return batch.filter([not any(row) for row in zip(*empty.values(), strict=True)])

    def _add(self, batch: SplitBatch, names: Sequence[str], empty: dict[str, list[bool]]) -> None:
        for index, (line, row) in enumerate(zip(batch.lines, zip(*empty.values(), strict=True), strict=True)):
            if "question" in names and any(row):
                self.collector.add_line(finding_kinds.EMPTY_QUESTION, batch.file, line, row=index + 1)
            elif all(row):
                self.collector.add_line(finding_kinds.EMPTY, batch.file, line)
            elif any(row):
                blank, filled = names[row.index(True)], names[row.index(False)]
                example = f"{filled}: {batch.fields[filled][index]}"
                self.collector.add_line(finding_kinds.ONE_EMPTY, batch.files[blank], line, example)


class StyleCheck:
    """Text that is tokenized or lowercased in one split and not in the training data, judged by samples."""

    def __init__(self, collector: FindingCollector) -> None:
        self.collector = collector
        self.samples: dict[str, dict[Split, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.files: dict[tuple[str, Split], str] = {}

    def update(self, batch: SplitBatch) -> None:
        """Add the texts of a batch to the samples."""
        for name in TEXT_FIELDS:
            if name in batch.fields:
                sample = self.samples[name][batch.split]
                self.files.setdefault((name, batch.split), str(batch.files[name]))
                sample.extend(batch.fields[name][: SAMPLE_SIZE - len(sample)])

    def finish(self) -> None:
        """Compare the splits with the training data."""
        for name, by_split in self.samples.items():
            if Split.TRAIN not in by_split:
                continue
            for split in (Split.VALID, Split.TEST):
                if split in by_split:
                    self._compare(name, split, by_split[Split.TRAIN], by_split[split])

    def _compare(self, name: str, split: Split, train: Sequence[str], other: Sequence[str]) -> None:
        file = self.files[name, split]
        for measure, style, opposite in (
            (_tokenized_fraction, "tokenized", "not tokenized"),
            (_lowercase_fraction, "lowercase", "not lowercase"),
        ):
            train_fraction, fraction = measure(train), measure(other)
            if train_fraction is None or fraction is None or abs(train_fraction - fraction) < 0.6:
                continue
            styles = (style, opposite) if fraction > train_fraction else (opposite, style)
            message = f"{max(fraction, 1 - fraction):.0%} of this text is {styles[0]}, the training data is {styles[1]}"
            self.collector.add_file(finding_kinds.UNLIKE, file, message, examples=[excerpt(other[0])])


def _tokenized_fraction(texts: Sequence[str]) -> float | None:
    """Fraction of the lines with punctuation in which a space separates it from the words."""
    separated = sum(SEPARATED_PUNCTUATION.search(text) is not None for text in texts)
    attached = sum(
        ATTACHED_PUNCTUATION.search(text) is not None and SEPARATED_PUNCTUATION.search(text) is None for text in texts
    )
    return separated / (separated + attached) if separated + attached >= 20 else None


def _lowercase_fraction(texts: Sequence[str]) -> float | None:
    """Fraction of the lines with cased letters that are entirely lowercase."""
    cased = [text for text in texts if text.lower() != text.upper()]
    return sum(text == text.lower() for text in cased) / len(cased) if len(cased) >= 20 else None
