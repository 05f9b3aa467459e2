"""Split the lines of a table into cells. A quoted cell may span several lines."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.data.line_blocks import LineBlock
from regard.data.problem import DataProblem, ProblemKind

MAX_QUOTED_LINES = 1000
"""A quoted cell with more lines counts as unclosed, so that a stray quote does not turn a whole file into one cell."""
MAX_CELL_CHARACTERS = 2**24
"""Maximum length of a quoted cell."""


@dataclass
class Rows:
    """Rows of a table: for each the number and text of its first line, and its cells."""

    lines: Sequence[int] = field(default_factory=list)
    texts: Sequence[str] = field(default_factory=list)
    cells: Sequence[list[str]] = field(default_factory=list)

    def select(self, indices: Sequence[int]) -> Rows:
        """Return the rows at these indices."""
        return Rows(
            [self.lines[index] for index in indices],
            [self.texts[index] for index in indices],
            [self.cells[index] for index in indices],
        )


class RowSplitter:
    """Splits blocks of lines into rows, and collects quotes that are not closed as problems."""

    def __init__(self, file: Path, separator: str, quoted: bool, max_splits: int) -> None:
        self.file, self.separator, self.quoted, self.max_splits = file, separator, quoted, max_splits
        self.open_lines: list[tuple[int, str]] = []
        csv.field_size_limit(MAX_CELL_CHARACTERS)

    def split(self, block: LineBlock, problems: list[DataProblem]) -> Rows:
        """Return the rows that end in a block."""
        texts, first = block.texts, block.first_line
        if not self.quoted or not (self.open_lines or any('"' in text for text in texts)):
            lines = range(first, first + len(texts))
            return Rows(lines, texts, [text.split(self.separator, self.max_splits) for text in texts])
        return _to_rows(self._split_quoted(first, texts, problems))

    def flush(self, problems: list[DataProblem]) -> Rows:
        """Return the rows that are still open at the end of the file."""
        rows: list[tuple[int, str, list[str]]] = []
        while self.open_lines:
            self._try_close(rows, problems, last=True)
        return _to_rows(rows)

    def _split_quoted(
        self, first: int, texts: Sequence[str], problems: list[DataProblem]
    ) -> list[tuple[int, str, list[str]]]:
        rows: list[tuple[int, str, list[str]]] = []
        for line, text in enumerate(texts, first):
            if not self.open_lines and '"' not in text:
                rows.append((line, text, text.split(self.separator, self.max_splits)))
            else:
                self.open_lines.append((line, text))
                self._try_close(rows, problems, last=False)
        return rows

    def _try_close(self, rows: list[tuple[int, str, list[str]]], problems: list[DataProblem], *, last: bool) -> None:
        """Make a row of the open lines if their quotes are closed, or report the first line."""
        may_continue = not last and len(self.open_lines) <= MAX_QUOTED_LINES
        if may_continue and len(self.open_lines) > 1 and '"' not in self.open_lines[-1][1]:
            return
        joined = "\n".join(text for _, text in self.open_lines)
        try:
            cells = next(csv.reader([joined], delimiter=self.separator, strict=True))
        except csv.Error as error:
            if may_continue and "end of data" in str(error):
                return
            self._report(rows, problems, str(error))
            return
        if self._spans_other_rows(len(cells)):
            self._report(rows, problems, "a quoted cell would span whole rows")
            return
        line, text = self.open_lines[0]
        rows.append((line, text, cells))
        self.open_lines = []

    def _spans_other_rows(self, width: int) -> bool:
        """Whether the lines inside a row look like rows: then two stray quotes were paired."""
        inner = [text.count(self.separator) + 1 == width and '""' not in text for _, text in self.open_lines[1:-1]]
        return width > 1 and len(inner) > 2 and all(inner)

    def _report(self, rows: list[tuple[int, str, list[str]]], problems: list[DataProblem], reason: str) -> None:
        """Report a stray quote in the first open line, and split the following lines again without it."""
        (line, text), following = self.open_lines[0], self.open_lines[1:]
        message = (
            f"the row that starts here is not valid CSV ({reason}). Look for an unclosed quotation mark; if quotation "
            'marks are ordinary text, set quoting to "none"'
        )
        problem = DataProblem(
            ProblemKind.UNCLOSED_QUOTE, self.file, line, message, text=text, position=max(0, text.find('"'))
        )
        problems.append(problem)
        self.open_lines = []
        for next_line, next_text in following:
            rows.extend(self._split_quoted(next_line, [next_text], problems))


def _to_rows(rows: Sequence[tuple[int, str, list[str]]]) -> Rows:
    lines, texts, cells = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return Rows(lines, texts, cells)
