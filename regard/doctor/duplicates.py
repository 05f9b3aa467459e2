"""Rows that repeat others: within a set, against their own label, and between training data and the rest.

A row is remembered as two numbers of eight bytes, so memory stays small. Numbers that are equal only raise a suspicion:
the suspected rows are read again, and compared by a long digest of their text before anything is said.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Example, Labelled, Pair, Plain, Question, Tagged
from regard.doctor import finding_kinds
from regard.doctor.finding import Kind, Ledger
from regard.doctor.tolerant_reader import Rows, Split

SHORT = 50
"""In plain text, lines below this length may well repeat ("ROMEO:")."""
KEY: dict[type[Example], tuple[str, ...]] = {
    Pair: ("source",),
    Plain: ("text",),
    Labelled: ("text", "pair"),
    Tagged: ("words",),
    Question: ("question", "context"),
}
"""What a network is given."""
REST: dict[type[Example], tuple[str, ...]] = {
    Pair: ("target",),
    Plain: (),
    Labelled: ("label",),
    Tagged: ("tags",),
    Question: ("answers",),
}
"""What it should say."""

Reread = Callable[[Split], Iterator[Rows]]
"""Gives a set's rows again."""


@dataclass
class _Seen:
    """The rows of a set."""

    key: array[int] = field(default_factory=lambda: array("q"))
    whole: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("i"))
    files: list[tuple[int, str]] = field(default_factory=list)
    """The number of the first row of each file."""

    def file(self, row: int) -> str:
        """The file in which a row stands."""
        return [name for first, name in self.files if first <= row][-1]


class Repeats:
    """Remembers rows while they are read, and compares them afterwards."""

    def __init__(self, ledger: Ledger, kind: type[Example], reread: Reread) -> None:
        self.ledger, self.kind, self.reread = ledger, kind, reread
        self.sets: dict[Split, _Seen] = {}

    def see(self, rows: Rows) -> None:
        """Some rows more."""
        rows = self.comparable(rows)
        seen = self.sets.setdefault(rows.split, _Seen())
        if not seen.files or seen.files[-1][1] != str(rows.file):
            seen.files.append((len(seen.lines), str(rows.file)))
        seen.lines.extend(rows.lines)
        seen.key.extend(map(hash, _texts(rows, KEY[self.kind])))
        seen.whole.extend(map(hash, _texts(rows, KEY[self.kind] + REST[self.kind])))

    def comparable(self, rows: Rows) -> Rows:
        """The rows that may not repeat."""
        if self.kind is not Plain:
            return rows
        return rows.where([len(text) >= SHORT for text in rows.fields["text"]])

    def finish(self) -> None:
        """Say what repeats."""
        suspects = {split: self._suspects(split) for split in self.sets}
        texts = {split: self._read_again(split, rows) for split, rows in suspects.items()}
        for known in texts.values():
            self._within(known)
        train = texts.get(Split.TRAIN)
        for split in (Split.VALID, Split.TEST):
            if train is not None and split in texts:
                self._between(train, texts[split])

    def _suspects(self, split: Split) -> NDArray[np.int64]:
        """The rows of a set that may repeat another: in this set, or between this one and the training data."""
        key = np.asarray(self.sets[split].key, dtype=np.int64)
        within = key if self.kind in (Labelled, Tagged) else np.asarray(self.sets[split].whole, dtype=np.int64)
        _, inverse, counts = np.unique(within, return_inverse=True, return_counts=True)
        twice = counts[inverse] > 1
        others = [one for one in self.sets if (one is Split.TRAIN) != (split is Split.TRAIN)]
        for other in others:
            twice |= np.isin(key, np.asarray(self.sets[other].key, dtype=np.int64))
        return np.flatnonzero(twice)

    def _read_again(self, split: Split, wanted: NDArray[np.int64]) -> _Known:
        known = _Known()
        if not len(wanted):
            return known
        seen, number, place = self.sets[split], 0, 0
        for rows in map(self.comparable, self.reread(split)):
            last = number + len(rows.lines)
            begun = place
            while place < len(wanted) and wanted[place] < last:
                place += 1
            mine = [int(row) - number for row in wanted[begun:place]]
            for at, key, whole in _picked(rows, mine, self.kind):
                row = number + at
                known.add(row, seen.file(row), seen.lines[row], key, whole)
            number = last
        return known

    def _within(self, known: _Known) -> None:
        first_whole: dict[bytes, int] = {}
        first_key: dict[bytes, int] = {}
        for place, (key, whole) in enumerate(known.digests()):
            if whole in first_whole:
                self._note(finding_kinds.DUPLICATE, known, place, f"as line {known.lines[first_whole[whole]]}")
            elif key in first_key and self.kind in (Labelled, Tagged):
                self._note(
                    finding_kinds.CONTRADICTION, known, place, f"line {known.lines[first_key[key]]} says otherwise"
                )
            first_whole.setdefault(whole, place)
            first_key.setdefault(key, place)

    def _between(self, train: _Known, other: _Known) -> None:
        keys, wholes = dict[bytes, int](), dict[bytes, int]()
        for place, (key, whole) in enumerate(train.digests()):
            keys.setdefault(key, place)
            wholes.setdefault(whole, place)
        for place, (key, whole) in enumerate(other.digests()):
            origin = wholes.get(whole, keys.get(key))
            if origin is None:
                continue
            kind = finding_kinds.SOURCE_LEAKAGE if self.kind is Pair and whole not in wholes else finding_kinds.LEAKAGE
            file = Path(train.files[origin]).name
            self._note(kind, other, place, f"as line {train.lines[origin]} of {file}")

    def _note(self, kind: Kind, known: _Known, place: int, said: str) -> None:
        example = f"{said}: {known.samples.get(place, '')}"
        self.ledger.note(kind, known.files[place], known.lines[place], example, row=known.rows[place])


SAMPLES = 2000


class _Known:
    """Suspected rows: where they stand, and a digest of what they hold. The text itself is kept for a few."""

    def __init__(self) -> None:
        self.lines: array[int] = array("i")
        self.rows: array[int] = array("q")
        self.files: list[str] = []
        self.samples: dict[int, str] = {}
        self._digests = bytearray()

    def add(self, row: int, file: str, line: int, key: str, whole: str) -> None:
        if len(self.samples) < SAMPLES:
            self.samples[len(self.lines)] = whole[:200].replace("\x1f", " | ").replace("\x1e", " ")
        self.lines.append(line)
        self.files.append(file)
        self.rows.append(row + 1)
        for text in (key, whole):
            self._digests += blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()

    def digests(self) -> Iterator[tuple[bytes, bytes]]:
        """Of each row: what the network is given, and that with what it should say."""
        for start in range(0, len(self._digests), 32):
            yield bytes(self._digests[start : start + 16]), bytes(self._digests[start + 16 : start + 32])


def _texts(rows: Rows, names: Sequence[str]) -> Iterable[Any]:
    """Each row's fields as one value that can be hashed."""
    columns = [rows.fields[name] for name in names if name in rows.fields]
    if any(isinstance(column[0], list) for column in columns if column):
        return (_joined(values) for values in zip(*columns, strict=True))
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)


def _joined(values: Sequence[Any]) -> str:
    """Fields as one text. The separator is a control character that text should not hold."""
    return "\x1f".join("\x1e".join(map(str, value)) if isinstance(value, list) else str(value) for value in values)


def _picked(rows: Rows, places: Sequence[int], kind: type[Example]) -> Iterator[tuple[int, str, str]]:
    for at in places:
        keys = [rows.fields[name][at] for name in KEY[kind] if name in rows.fields]
        rest = [rows.fields[name][at] for name in REST[kind] if name in rows.fields]
        yield at, _joined(keys), _joined(keys + rest)
