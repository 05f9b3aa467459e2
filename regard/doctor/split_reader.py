"""Reading the files of a split for the doctor: what training would refuse becomes a finding and is skipped."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data.example import Example
from regard.data.fields import LabelType
from regard.data.formats import Format, JsonLines, Squad
from regard.data.line_blocks import LineBlock
from regard.data.problem import DataProblem, ProblemKind
from regard.data.reader import parse_files
from regard.data.record_batch import RecordBatch
from regard.doctor import finding_kinds
from regard.doctor.character_checks import check_characters
from regard.doctor.finding import FindingCollector, FindingKind
from regard.doctor.text_file import Escaping, TextFile

TEXT_FIELDS = ("source", "target", "text", "pair", "question", "context")
"""The fields that contain text."""
FINDING_KINDS: dict[ProblemKind, FindingKind | None] = {
    ProblemKind.BLANK_ROW: finding_kinds.EMPTY,
    ProblemKind.HEADER: finding_kinds.HEADER,
    ProblemKind.RAGGED: finding_kinds.RAGGED,
    ProblemKind.UNCLOSED_QUOTE: finding_kinds.UNBALANCED_QUOTE,
    ProblemKind.MISSING_COLUMN: finding_kinds.NO_COLUMN,
    ProblemKind.INVALID_JSON: finding_kinds.BROKEN_JSON,
    ProblemKind.INVALID_DOCUMENT: finding_kinds.BROKEN_JSON,
    ProblemKind.NOT_SQUAD: finding_kinds.BAD_DATASET,
    ProblemKind.MISSING_KEY: finding_kinds.MISSING_KEY,
    ProblemKind.WRONG_TYPE: finding_kinds.WRONG_TYPE,
    ProblemKind.EMPTY_LABEL: finding_kinds.EMPTY_LABEL,
    ProblemKind.NO_NUMBER: finding_kinds.NO_NUMBER,
    ProblemKind.MISSING_TAG: finding_kinds.NO_TAG,
    ProblemKind.LINE_COUNTS: None,  # the check of the alignment finds out where the line is missing
}
"""The finding of each kind of problem."""
FILE_KINDS = (ProblemKind.MISSING_COLUMN, ProblemKind.INVALID_DOCUMENT, ProblemKind.NOT_SQUAD, ProblemKind.HEADER)
"""Problems of a whole file."""
REMEDIES = {ProblemKind.INVALID_DOCUMENT: "correct the JSON syntax"}


class Split(enum.StrEnum):
    """Split of the data."""

    TRAIN = "train"
    VALID = "valid"
    TEST = "test"


@dataclass(frozen=True)
class SplitBatch(RecordBatch):
    """Some rows of a file of a split."""

    split: Split = Split.TRAIN

    def filter(self, mask: Sequence[bool]) -> SplitBatch:
        """Return the rows where `mask` is true."""
        lines = [line for line, selected in zip(self.lines, mask, strict=True) if selected]
        fields = {
            name: [value for value, selected in zip(column, mask, strict=True) if selected]
            for name, column in self.fields.items()
        }
        return SplitBatch(lines, fields, self.files, split=self.split)


class SplitReader:
    """Reads the files of a split in batches and adds problems to the collector."""

    def __init__(
        self,
        example_type: type[Example],
        file_format: Format,
        label_type: LabelType,
        collector: FindingCollector,
        on_bytes_read: Callable[[int], None],
    ) -> None:
        self.example_type, self.file_format, self.label_type = example_type, file_format, label_type
        self.collector, self.on_bytes_read = collector, on_bytes_read
        self.escaping = Escaping.JSON if isinstance(file_format, JsonLines | Squad) else Escaping.NONE
        self.text_files: dict[str, TextFile] = {}

    def read(self, split: Split, files: Sequence[Path]) -> Iterator[SplitBatch]:
        """Yield the rows of these files in batches."""
        opened: list[Iterator[LineBlock]] = []

        def open_blocks(path: Path) -> Iterator[LineBlock]:
            self.text_files[str(path)] = TextFile(path, self.collector, self.escaping)
            opened.append(self.text_files[str(path)].blocks(self.on_bytes_read))
            return opened[-1]

        batches = parse_files(
            self.example_type, files, self.file_format, label_type=self.label_type, open_blocks=open_blocks
        )
        for batch in batches:
            for problem in batch.problems:
                self._add_problem(problem)
            if not batch.lines:
                continue
            if self.escaping is Escaping.JSON:
                self._check_characters(batch)
            yield SplitBatch(batch.lines, batch.fields, batch.files, split=split)
        for blocks in opened:
            for _ in blocks:
                pass  # the rest of a file that cannot be parsed is checked too, and its lines are counted

    def _check_characters(self, batch: RecordBatch) -> None:
        """Check the characters of texts that are escaped in the file."""
        columns = [batch.fields[name] for name in TEXT_FIELDS if name in batch.fields]
        texts = ["\n".join(text or "" for text in row) for row in zip(*columns, strict=True)]
        if texts:
            check_characters(batch.file, batch.lines, texts, self.collector)

    def _add_problem(self, problem: DataProblem) -> None:
        kind = FINDING_KINDS[problem.kind]
        if kind is None:
            return
        if problem.kind in FILE_KINDS:
            message, remedy = problem.message, REMEDIES.get(problem.kind)
            self.collector.add_file(kind, problem.file, message, lines=[problem.line or 1], remedy=remedy)
        else:
            self.collector.add_line(kind, problem.file, problem.line or 1, problem.text, problem.position)
