"""Checks for duplicate rows: within a split, with contradicting labels, and between the training data and other splits.

Each row is stored as two 64-bit hashes, so memory stays small. Equal hashes only give candidates: the candidate rows
are read a second time and compared by a 128-bit digest of their text before a finding is added.
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

from regard.data.example import Document, Example, LabeledText, Pair, Question, TaggedSentence
from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector, FindingKind
from regard.doctor.split_reader import Split, SplitBatch

MIN_COMPARED_CHARACTERS = 50
"""In plain text, shorter lines may repeat ("ROMEO:") and are not compared."""
INPUT_FIELDS: dict[type[Example], tuple[str, ...]] = {
    Pair: ("source",),
    Document: ("text",),
    LabeledText: ("text", "pair"),
    TaggedSentence: ("words",),
    Question: ("question", "context"),
}
"""Input fields of the network."""
TARGET_FIELDS: dict[type[Example], tuple[str, ...]] = {
    Pair: ("target",),
    Document: (),
    LabeledText: ("label",),
    TaggedSentence: ("tags",),
    Question: ("answers",),
}
"""Target fields."""

Reread = Callable[[Split], Iterator[SplitBatch]]
"""Reads the rows of a split again."""


@dataclass
class _RowHashes:
    """Hashes and line numbers of the rows of a split."""

    input_hashes: array[int] = field(default_factory=lambda: array("q"))
    row_hashes: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("i"))
    files: list[tuple[int, str]] = field(default_factory=list)
    """Index of the first row of each file, and the file."""

    def file(self, row: int) -> str:
        """Return the file of a row."""
        return [name for first, name in self.files if first <= row][-1]


class DuplicateCheck:
    """Duplicates and leakage: rows are hashed while they are read, and compared at the end."""

    def __init__(self, collector: FindingCollector, example_type: type[Example], reread: Reread) -> None:
        self.collector, self.example_type, self.reread = collector, example_type, reread
        self.by_split: dict[Split, _RowHashes] = {}
        self.leaked: dict[str, set[int]] = {}
        """The lines of training files whose input is in another split too."""

    def update(self, batch: SplitBatch) -> None:
        """Hash a batch of rows."""
        batch = self.comparable(batch)
        hashes = self.by_split.setdefault(batch.split, _RowHashes())
        if not hashes.files or hashes.files[-1][1] != str(batch.file):
            hashes.files.append((len(hashes.lines), str(batch.file)))
        inputs, targets = INPUT_FIELDS[self.example_type], TARGET_FIELDS[self.example_type]
        hashes.lines.extend(batch.lines)
        hashes.input_hashes.extend(map(hash, _hashable_rows(batch, inputs)))
        hashes.row_hashes.extend(map(hash, _hashable_rows(batch, inputs + targets)))

    def comparable(self, batch: SplitBatch) -> SplitBatch:
        """Return the rows that must not repeat."""
        if self.example_type is not Document:
            return batch
        return batch.filter([len(text) >= MIN_COMPARED_CHARACTERS for text in batch.fields["text"]])

    def finish(self) -> None:
        """Add findings for duplicates within each split, and between the training data and the other splits."""
        candidates = {split: self._load_candidates(split, self._candidate_rows(split)) for split in self.by_split}
        for rows in candidates.values():
            self._check_within(rows)
        train = candidates.get(Split.TRAIN)
        for split in (Split.VALID, Split.TEST):
            if train is not None and split in candidates:
                self._check_leakage(train, candidates[split])

    def _candidate_rows(self, split: Split) -> NDArray[np.int64]:
        """Indices of the rows whose hash occurs twice in the split, or also in the training data (or the other way)."""
        inputs = np.asarray(self.by_split[split].input_hashes, dtype=np.int64)
        within = (
            inputs
            if self.example_type in (LabeledText, TaggedSentence)
            else np.asarray(self.by_split[split].row_hashes, dtype=np.int64)
        )
        _, inverse, counts = np.unique(within, return_inverse=True, return_counts=True)
        repeated = counts[inverse] > 1
        others = [other for other in self.by_split if (other is Split.TRAIN) != (split is Split.TRAIN)]
        for other in others:
            repeated |= np.isin(inputs, np.asarray(self.by_split[other].input_hashes, dtype=np.int64))
        return np.flatnonzero(repeated)

    def _load_candidates(self, split: Split, rows: NDArray[np.int64]) -> _Candidates:
        candidates = _Candidates()
        if not len(rows):
            return candidates
        hashes, first_row, index = self.by_split[split], 0, 0
        for batch in map(self.comparable, self.reread(split)):
            end_row = first_row + len(batch.lines)
            start_index = index
            while index < len(rows) and rows[index] < end_row:
                index += 1
            selected = [int(row) - first_row for row in rows[start_index:index]]
            for offset, input_text, row_text in _select_rows(batch, selected, self.example_type):
                row = first_row + offset
                candidates.add(row, hashes.file(row), hashes.lines[row], input_text, row_text)
            first_row = end_row
        return candidates

    def _check_within(self, candidates: _Candidates) -> None:
        lines = candidates.lines
        first_row: dict[bytes, int] = {}
        first_input: dict[bytes, int] = {}
        for index, (input_digest, row_digest) in enumerate(candidates.digests()):
            if row_digest in first_row:
                self._add(finding_kinds.DUPLICATE, candidates, index, f"same as line {lines[first_row[row_digest]]}")
            elif input_digest in first_input and self.example_type in (LabeledText, TaggedSentence):
                message = f"line {lines[first_input[input_digest]]} has another label"
                self._add(finding_kinds.CONTRADICTION, candidates, index, message)
            first_row.setdefault(row_digest, index)
            first_input.setdefault(input_digest, index)

    def _check_leakage(self, train: _Candidates, other: _Candidates) -> None:
        train_inputs, train_rows = dict[bytes, int](), dict[bytes, int]()
        for index, (input_digest, row_digest) in enumerate(train.digests()):
            train_inputs.setdefault(input_digest, index)
            train_rows.setdefault(row_digest, index)
        other_inputs = {input_digest for input_digest, _ in other.digests()}
        for index, (input_digest, _) in enumerate(train.digests()):
            if input_digest in other_inputs:
                self.leaked.setdefault(train.files[index], set()).add(train.lines[index])
        for index, (input_digest, row_digest) in enumerate(other.digests()):
            origin = train_rows.get(row_digest, train_inputs.get(input_digest))
            if origin is None:
                continue
            source_only = self.example_type is Pair and row_digest not in train_rows
            kind = finding_kinds.SOURCE_LEAKAGE if source_only else finding_kinds.LEAKAGE
            file = Path(train.files[origin]).name
            self._add(kind, other, index, f"same as line {train.lines[origin]} of {file}")

    def _add(self, kind: FindingKind, candidates: _Candidates, index: int, message: str) -> None:
        example = f"{message}: {candidates.excerpts.get(index, '')}"
        file, line, row = candidates.files[index], candidates.lines[index], candidates.rows[index]
        self.collector.add_line(kind, file, line, example, row=row)


MAX_EXCERPTS = 2000


class _Candidates:
    """Candidate rows: file, line and digests of each, and the text of the first `MAX_EXCERPTS`."""

    def __init__(self) -> None:
        self.lines: array[int] = array("i")
        self.rows: array[int] = array("q")
        self.files: list[str] = []
        self.excerpts: dict[int, str] = {}
        self._digests = bytearray()

    def add(self, row: int, file: str, line: int, input_text: str, row_text: str) -> None:
        if len(self.excerpts) < MAX_EXCERPTS:
            self.excerpts[len(self.lines)] = row_text[:200].replace("\x1f", " | ").replace("\x1e", " ")
        self.lines.append(line)
        self.files.append(file)
        self.rows.append(row + 1)
        for text in (input_text, row_text):
            self._digests += blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()

    def digests(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield for each row the digest of its input fields, and that of all its fields."""
        for start in range(0, len(self._digests), 32):
            yield bytes(self._digests[start : start + 16]), bytes(self._digests[start + 16 : start + 32])


def _hashable_rows(batch: SplitBatch, names: Sequence[str]) -> Iterable[Any]:
    """The fields of each row as one hashable value."""
    columns = [batch.fields[name] for name in names if name in batch.fields]
    if any(isinstance(column[0], tuple) for column in columns if column):
        return (_join_fields(values) for values in zip(*columns, strict=True))
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)


def _join_fields(values: Sequence[Any]) -> str:
    """Join fields to one string. The separators are control characters that do not occur in text."""
    return "\x1f".join("\x1e".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values)


def _select_rows(
    batch: SplitBatch, indices: Sequence[int], example_type: type[Example]
) -> Iterator[tuple[int, str, str]]:
    """Yield the index, the joined input fields and all joined fields of the rows at `indices`."""
    for index in indices:
        inputs = [batch.fields[name][index] for name in INPUT_FIELDS[example_type] if name in batch.fields]
        targets = [batch.fields[name][index] for name in TARGET_FIELDS[example_type] if name in batch.fields]
        yield index, _join_fields(inputs), _join_fields(inputs + targets)
