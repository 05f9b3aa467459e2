"""Checks that every kind of text shares: what is empty, and what is written in another way than the training data."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from regard.doctor import finding_kinds
from regard.doctor.finding import Ledger, clip
from regard.doctor.tolerant_reader import TEXTS, Rows, Split

SAMPLE = 5000
ATTACHED = re.compile(r"\w[.,;:!?](?:\s|$)")
APART = re.compile(r"\s[.,;:!?](?:\s|$)")


def blank(text: str) -> bool:
    """Whether there is nothing to read."""
    return not text or text.isspace()


class Emptiness:
    """Rows without text. They are noted once, and no other check sees them."""

    def __init__(self, ledger: Ledger, blank_lines_part: bool) -> None:
        self.ledger, self.blank_lines_part = ledger, blank_lines_part

    def keep(self, rows: Rows) -> Rows:
        """The rows that have text on every side."""
        names = [name for name in TEXTS if name in rows.fields and name != "pair"]
        if all(all(rows.fields[name]) and not any(map(str.isspace, rows.fields[name])) for name in names):
            return rows
        empty = {name: [blank(text) for text in rows.fields[name]] for name in names}
        if not self.blank_lines_part:  # in plain text an empty line parts paragraphs
            self._note(rows, names, empty)
        return rows.where([not any(row) for row in zip(*empty.values(), strict=True)])

    def _note(self, rows: Rows, names: Sequence[str], empty: dict[str, list[bool]]) -> None:
        for at, (line, row) in enumerate(zip(rows.lines, zip(*empty.values(), strict=True), strict=True)):
            if "question" in names and any(row):
                self.ledger.note(finding_kinds.EMPTY_QUESTION, rows.file, line, row=at + 1)
            elif all(row):
                self.ledger.note(finding_kinds.EMPTY, rows.file, line)
            elif any(row):
                gone, there = names[row.index(True)], names[row.index(False)]
                self.ledger.note(finding_kinds.ONE_EMPTY, rows.files[gone], line, f"{there}: {rows.fields[there][at]}")


class Manner:
    """Text that is tokenised or in lower case in one set and not in the other. A sample of each set tells."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.samples: dict[str, dict[Split, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.files: dict[tuple[str, Split], str] = {}

    def see(self, rows: Rows) -> None:
        """Some rows more."""
        for name in TEXTS:
            if name in rows.fields:
                sample = self.samples[name][rows.split]
                self.files.setdefault((name, rows.split), str(rows.files[name]))
                sample.extend(rows.fields[name][: SAMPLE - len(sample)])

    def finish(self) -> None:
        """Compare the sets with the training data."""
        for name, by_split in self.samples.items():
            if Split.TRAIN not in by_split:
                continue
            for split in (Split.VALID, Split.TEST):
                if split in by_split:
                    self._compare(name, split, by_split[Split.TRAIN], by_split[split])

    def _compare(self, name: str, split: Split, train: Sequence[str], other: Sequence[str]) -> None:
        file = self.files[name, split]
        for measure, yes, no in (
            (_apart, "tokenised", "not tokenised"),
            (_lower, "in lower case", "not in lower case"),
        ):
            ours, theirs = measure(train), measure(other)
            if ours is None or theirs is None or abs(ours - theirs) < 0.6:
                continue
            words = (yes, no) if theirs > ours else (no, yes)
            said = f"{max(theirs, 1 - theirs):.0%} of this text is {words[0]}, the training data is {words[1]}"
            self.ledger.say(finding_kinds.UNLIKE, file, said, examples=[clip(other[0])])


def _apart(texts: Sequence[str]) -> float | None:
    """The share of lines with punctuation in which it stands apart from the words, as tokenisers leave it."""
    apart = sum(APART.search(text) is not None for text in texts)
    attached = sum(ATTACHED.search(text) is not None and APART.search(text) is None for text in texts)
    return apart / (apart + attached) if apart + attached >= 20 else None


def _lower(texts: Sequence[str]) -> float | None:
    """The share of lines with letters that have a case which are wholly in lower case."""
    cased = [text for text in texts if text.lower() != text.upper()]
    return sum(text == text.lower() for text in cased) / len(cased) if len(cased) >= 20 else None
