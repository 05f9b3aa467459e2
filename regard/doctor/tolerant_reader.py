"""Files as rows of fields, read whatever is wrong with them: what the readers would refuse is noted, and skipped."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.example import Example
from regard.data.formats import Conll, Format, JsonLines, Parallel, Squad, Table, Text
from regard.data.readers.plain import expand
from regard.doctor.character_checks import look
from regard.doctor.finding import Ledger
from regard.doctor.text_file import TextFile, Written

TEXTS = ("source", "target", "text", "pair", "question", "context")
"""The fields that hold text."""


class Split(enum.StrEnum):
    """What a set of files is for."""

    TRAIN = "train"
    VALID = "valid"
    TEST = "test"


@dataclass
class Rows:
    """Some rows of a set: the line on which each begins, and its fields, column by column."""

    split: Split
    lines: Sequence[int]
    fields: dict[str, list[Any]]
    files: dict[str, Path]
    """The file in which each field stands: two for parallel text, one otherwise."""

    @property
    def file(self) -> Path:
        """The file that findings about whole rows name."""
        return next(iter(self.files.values()))

    def look(self, ledger: Ledger) -> None:
        """Look at the characters of texts that were written with escapes."""
        columns = [self.fields[name] for name in TEXTS if name in self.fields]
        texts = ["\n".join(text or "" for text in row) for row in zip(*columns, strict=True)]
        if texts:
            look(self.file, self.lines, texts, ledger)

    def where(self, wanted: Sequence[bool]) -> Rows:
        """The rows for which this is true."""
        lines = [line for line, one in zip(self.lines, wanted, strict=True) if one]
        fields = {
            name: [value for value, one in zip(column, wanted, strict=True) if one]
            for name, column in self.fields.items()
        }
        return Rows(self.split, lines, fields, self.files)


class Reading:
    """A set's files, opened for the doctor. What is met on the way goes to the ledger."""

    def __init__(self, kind: type[Example], form: Format, ledger: Ledger, tell: Callable[[int], None]) -> None:
        self.kind, self.form, self.ledger, self.tell = kind, form, ledger, tell
        self.opened: dict[str, TextFile] = {}

    def open(self, path: Path, form: Written = Written.PLAINLY) -> TextFile:
        """A file, of which it is remembered that it was opened."""
        self.opened[str(path)] = TextFile(path, self.ledger, form)
        return self.opened[str(path)]

    def rows(self, split: Split, files: Sequence[Path]) -> Iterator[Rows]:
        """Everything in these files, block by block."""
        from regard.doctor.tolerant_conll import read_conll
        from regard.doctor.tolerant_squad import read_squad
        from regard.doctor.tolerant_tables import read_json_lines, read_table

        match self.form:
            case Parallel():
                for source, target in zip(files[::2], files[1::2], strict=True):
                    yield from self._parallel(split, source, target)
            case Text():
                for file in expand(files):
                    yield from self._plain(split, file)
            case Table():
                for file in files:
                    yield from read_table(self, self.form, split, file)
            case JsonLines():
                for file in files:
                    yield from read_json_lines(self, self.form, split, file)
            case Conll():
                for file in files:
                    yield from read_conll(self, self.form, split, file)
            case Squad():
                for file in files:
                    yield from read_squad(self, split, file)

    def _plain(self, split: Split, file: Path) -> Iterator[Rows]:
        for block in self.open(file).blocks(self.tell):
            lines = range(block.first, block.first + len(block.texts))
            yield Rows(split, lines, {"text": block.texts}, {"text": file})

    def _parallel(self, split: Split, source: Path, target: Path) -> Iterator[Rows]:
        """Two files side by side. Their blocks need not have the same size; what is too much is read all the same."""
        streams = [self.open(path).blocks(self.tell) for path in (source, target)]
        held: list[list[str]] = [[], []]
        files, first = {"source": source, "target": target}, 1
        while True:
            for side, stream in enumerate(streams):
                if not held[side] and (block := next(stream, None)):
                    held[side] = block.texts
            count = min(map(len, held))
            if not count:
                break
            fields = {name: side[:count] for name, side in zip(files, held, strict=True)}
            yield Rows(split, range(first, first + count), fields, files)
            held, first = [side[count:] for side in held], first + count
        for stream in streams:
            for _ in stream:
                pass  # the rest of the longer file has lines to look at, and a number of them


def sizes(opened: Mapping[str, TextFile]) -> dict[str, int]:
    """How many lines each file has."""
    return {name: file.lines for name, file in opened.items()}
