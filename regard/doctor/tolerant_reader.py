"""Tolerant reading of data files: what the readers of `regard.data` reject becomes a finding and is skipped."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.example import Example
from regard.data.formats import Conll, Format, JsonLines, Parallel, Squad, Table, Text
from regard.data.readers.plain import expand_folders
from regard.doctor.character_checks import check_characters
from regard.doctor.finding import FindingCollector
from regard.doctor.text_file import Escaping, TextFile

TEXT_FIELDS = ("source", "target", "text", "pair", "question", "context")
"""The fields that contain text."""


class Split(enum.StrEnum):
    """Split of the data."""

    TRAIN = "train"
    VALID = "valid"
    TEST = "test"


@dataclass
class RecordBatch:
    """A batch of rows of a split: the first line of each row, and its fields by column."""

    split: Split
    lines: Sequence[int]
    fields: dict[str, list[Any]]
    files: dict[str, Path]
    """The file of each field: two files for parallel text, else one."""

    @property
    def file(self) -> Path:
        """The file that is named in findings about whole rows."""
        return next(iter(self.files.values()))

    def check_characters(self, collector: FindingCollector) -> None:
        """Check the characters of texts that were escaped in the file."""
        columns = [self.fields[name] for name in TEXT_FIELDS if name in self.fields]
        texts = ["\n".join(text or "" for text in row) for row in zip(*columns, strict=True)]
        if texts:
            check_characters(self.file, self.lines, texts, collector)

    def filter(self, mask: Sequence[bool]) -> RecordBatch:
        """Return the rows where `mask` is true."""
        lines = [line for line, selected in zip(self.lines, mask, strict=True) if selected]
        fields = {
            name: [value for value, selected in zip(column, mask, strict=True) if selected]
            for name, column in self.fields.items()
        }
        return RecordBatch(self.split, lines, fields, self.files)


class TolerantReader:
    """Reads the files of a split in batches and adds problems to the collector."""

    def __init__(
        self,
        example_type: type[Example],
        file_format: Format,
        collector: FindingCollector,
        on_bytes_read: Callable[[int], None],
    ) -> None:
        self.example_type, self.file_format = example_type, file_format
        self.collector, self.on_bytes_read = collector, on_bytes_read
        self.text_files: dict[str, TextFile] = {}

    def open(self, path: Path, escaping: Escaping = Escaping.NONE) -> TextFile:
        """Open a file and register it in `text_files`."""
        self.text_files[str(path)] = TextFile(path, self.collector, escaping)
        return self.text_files[str(path)]

    def read(self, split: Split, files: Sequence[Path]) -> Iterator[RecordBatch]:
        """Yield the rows of these files in batches."""
        from regard.doctor.tolerant_conll import read_conll_tolerant
        from regard.doctor.tolerant_squad import read_squad_tolerant
        from regard.doctor.tolerant_tables import read_jsonl_tolerant, read_table_tolerant

        match self.file_format:
            case Parallel():
                for source, target in zip(files[::2], files[1::2], strict=True):
                    yield from self._parallel(split, source, target)
            case Text():
                for file in expand_folders(files):
                    yield from self._plain(split, file)
            case Table():
                for file in files:
                    yield from read_table_tolerant(self, self.file_format, split, file)
            case JsonLines():
                for file in files:
                    yield from read_jsonl_tolerant(self, self.file_format, split, file)
            case Conll():
                for file in files:
                    yield from read_conll_tolerant(self, self.file_format, split, file)
            case Squad():
                for file in files:
                    yield from read_squad_tolerant(self, split, file)

    def _plain(self, split: Split, file: Path) -> Iterator[RecordBatch]:
        for block in self.open(file).blocks(self.on_bytes_read):
            lines = range(block.first_line, block.first_line + len(block.texts))
            yield RecordBatch(split, lines, {"text": block.texts}, {"text": file})

    def _parallel(self, split: Split, source: Path, target: Path) -> Iterator[RecordBatch]:
        """Read two files in parallel. Their blocks may differ in size. Extra lines of the longer file are read too."""
        streams = [self.open(path).blocks(self.on_bytes_read) for path in (source, target)]
        pending: list[list[str]] = [[], []]
        files, first = {"source": source, "target": target}, 1
        while True:
            for side, stream in enumerate(streams):
                if not pending[side] and (block := next(stream, None)):
                    pending[side] = block.texts
            count = min(map(len, pending))
            if not count:
                break
            fields = {name: side[:count] for name, side in zip(files, pending, strict=True)}
            yield RecordBatch(split, range(first, first + count), fields, files)
            pending, first = [side[count:] for side in pending], first + count
        for stream in streams:
            for _ in stream:
                pass  # read the rest of the longer file, to check and count its lines
