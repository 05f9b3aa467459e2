"""Tables: TSV, CSV and similar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regard.data.example import Document, Example, Pair
from regard.data.fields import OPTIONAL_FIELDS, REQUIRED_FIELDS, FieldConverter, check_fields
from regard.data.formats import Cells, Header, Quoting, Table
from regard.data.line_blocks import LineBlock
from regard.data.problem import DataProblem, ProblemKind
from regard.data.readers.header_detection import looks_like_header
from regard.data.readers.row_splitter import Rows, RowSplitter
from regard.data.record_batch import RecordBatch, make_batch
from regard.tokenization.text_files import format_suffix

POSITIONAL_TYPES = (Pair, Document)
"""Example types whose columns are taken in order if the table has no header and exactly the required columns."""
SAMPLE_ROWS = 1000
"""Number of rows by which a header is recognized."""


def parse_table(
    file: Path, blocks: Iterable[LineBlock], file_format: Table, converter: FieldConverter
) -> Iterator[RecordBatch]:
    """Yield the rows of a table."""
    try:
        check_fields(converter.example_type, file_format.columns, file)
    except DataProblem as problem:
        yield make_batch(file, (), {}, [problem])
        return
    separator = file_format.separator or ("," if format_suffix(file) == ".csv" else "\t")
    quoting = file_format.quoting or (Quoting.NONE if separator == "\t" else Quoting.CSV)
    splitter = RowSplitter(file, separator, quoting is Quoting.CSV, _max_splits(file_format))
    table: _TableParser | None = None
    for block in chain(blocks, [None]):
        problems: list[DataProblem] = []
        rows = splitter.flush(problems) if block is None else splitter.split(block, problems)
        if table is None:
            rows = _drop_blank(rows, file, problems)
            if not rows.lines:
                yield make_batch(file, (), {}, problems)
                continue
            try:
                layout = detect_layout(file, file_format, converter.example_type, rows, separator)
            except DataProblem as problem:
                yield make_batch(file, (), {}, [*problems, problem])
                return
            table = _TableParser(file, file_format, quoting, converter, layout)
            rows = table.without_header(rows, problems)
        yield table.parse(rows, problems)


@dataclass(frozen=True, kw_only=True)
class ColumnLayout:
    """The columns of the fields of an example."""

    column_indices: Mapping[str, int]
    width: int
    """The usual number of cells."""
    has_header: bool
    """Whether the first row is a header."""
    has_names: bool
    """Whether it is one by the format, or by the names of the fields. Else it only looks like one."""
    min_cells: int
    """Minimum number of cells of a row, so that every field has a cell."""


class _TableParser:
    """Parses the rows of one table, whose layout is known."""

    def __init__(
        self, file: Path, file_format: Table, quoting: Quoting, converter: FieldConverter, layout: ColumnLayout
    ) -> None:
        self.file, self.format, self.quoting = file, file_format, quoting
        self.converter, self.layout = converter, layout

    def without_header(self, rows: Rows, problems: list[DataProblem]) -> Rows:
        """Return the rows below the header."""
        if not self.layout.has_header:
            return rows
        if not self.layout.has_names:
            names = ", ".join(rows.cells[0])[:200]
            message = f"the first line is read as the names of the columns ({names}), not as an example"
            problems.append(DataProblem(ProblemKind.HEADER, self.file, rows.lines[0], message, text=names))
        return Rows(rows.lines[1:], rows.texts[1:], rows.cells[1:])

    def parse(self, rows: Rows, problems: list[DataProblem]) -> RecordBatch:
        """Convert rows to columns."""
        if {*map(len, rows.cells)} != {self.layout.width} or self.layout.width == 1:
            rows = self._drop_ragged(_drop_blank(rows, self.file, problems), problems)
        problems.sort(key=lambda problem: problem.line or 0)
        if not rows.lines:
            return make_batch(self.file, (), {}, problems)
        indices = self.layout.column_indices
        if self.format.cells is Cells.AT_LEAST:
            columns = {name: [cells[index] for cells in rows.cells] for name, index in indices.items()}
        else:
            by_index = list(zip(*rows.cells, strict=True))
            columns = {name: list(by_index[index]) for name, index in indices.items()}
        return self.converter.convert_columns(self.file, rows.lines, columns, problems)

    def _drop_ragged(self, rows: Rows, problems: list[DataProblem]) -> Rows:
        """Remove rows with an unexpected number of cells."""
        layout, at_least = self.layout, self.format.cells is Cells.AT_LEAST
        regular = []
        for index, cells in enumerate(rows.cells):
            if len(cells) >= layout.min_cells if at_least else len(cells) == layout.width:
                regular.append(index)
                continue
            expected = f"at least {layout.min_cells}" if at_least else f"{layout.width}"
            problem = DataProblem(
                ProblemKind.RAGGED,
                self.file,
                rows.lines[index],
                self._ragged_message(len(cells)),
                text=f"{len(cells)} columns, expected {expected}: {rows.texts[index]}",
            )
            problems.append(problem)
        return rows if len(regular) == len(rows.cells) else rows.select(regular)

    def _ragged_message(self, num_cells: int) -> str:
        layout = self.layout
        expected = f"{layout.width}, as in the other rows"
        if self.format.cells is Cells.AT_LEAST:
            expected = f"at least {layout.min_cells}"
        message = f"the row has {num_cells} cells, expected {expected}."
        if num_cells > layout.width:
            hint = "quote it" if self.quoting is Quoting.CSV else "unquoted cells cannot contain it"
            remedy = 'To ignore extra cells, set cells to "at least"'
            return f"{message} Does a cell contain the separator ({hint})? {remedy}"
        return f"{message} Look for a line broken in two, or a missing column"


def _drop_blank(rows: Rows, file: Path, problems: list[DataProblem]) -> Rows:
    """Remove rows without text."""
    content = [index for index, text in enumerate(rows.texts) if len(rows.cells[index]) > 1 or not _is_blank(text)]
    if len(content) == len(rows.texts):
        return rows
    kept = {*content}
    for index, line in enumerate(rows.lines):
        if index not in kept:
            problems.append(DataProblem(ProblemKind.BLANK_ROW, file, line, "the line is empty"))
    return rows.select(content)


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def detect_layout(
    file: Path, file_format: Table, example_type: type[Example], rows: Rows, separator: str
) -> ColumnLayout:
    """Find the columns of the fields from the format's `columns` and the first rows, of which one may be a header."""
    required, optional = REQUIRED_FIELDS[example_type], OPTIONAL_FIELDS[example_type]
    width = Counter(map(len, rows.cells)).most_common(1)[0][0]
    first, line = rows.cells[0], rows.lines[0]
    columns: dict[str, str | int] = {name: file_format.columns.get(name, name) for name in required + optional}
    has_names = _has_names(file_format, example_type, first)
    if not has_names and not file_format.columns and example_type in POSITIONAL_TYPES and len(required) == width:
        columns = {name: index for index, name in enumerate(required)}
    guessed = not has_names and file_format.header is Header.GUESS and len(first) == width
    has_header = has_names or (guessed and _looks_like_header(columns, rows))
    at_least = file_format.cells is Cells.AT_LEAST
    if has_header and len(first) != width and not at_least:
        message = f"the header has {len(first)} cells, the rows have {width}: look for a missing name, or a broken line"
        raise DataProblem(ProblemKind.RAGGED, file, line, message, text=", ".join(first))
    if not has_header and len(first) != width and not at_least:
        index = next(index for index, cells in enumerate(rows.cells) if len(cells) == width)
        first, line = rows.cells[index], rows.lines[index]
    indices = {}
    for name, column in columns.items():
        number = _column_index(column, first if has_names else [])
        if number is not None and -len(first) <= number < len(first):
            indices[name] = number
        elif name in required or name in file_format.columns:
            raise _missing_column(file, line, name, column, first, separator)
    min_cells = max(index + 1 if index >= 0 else -index for index in indices.values())
    return ColumnLayout(
        column_indices=indices, width=width, has_header=has_header, has_names=has_names, min_cells=min_cells
    )


def _has_names(file_format: Table, example_type: type[Example], cells: list[str]) -> bool:
    """Whether the first row is a header because the format says so, or because it has the names of the columns."""
    if file_format.header is not Header.GUESS:
        return file_format.header is Header.FIRST_LINE
    required = [file_format.columns.get(name, name) for name in REQUIRED_FIELDS[example_type]]
    names = {column for column in (*required, *file_format.columns.values()) if isinstance(column, str)}
    by_name = any(isinstance(column, str) for column in file_format.columns.values())
    return by_name or (bool(names) and names <= set(cells))


def _looks_like_header(columns: Mapping[str, str | int], rows: Rows) -> bool:
    """Whether the first row looks like a header, where the columns are given by index."""
    width = len(rows.cells[0])
    used = {name: column for name, column in columns.items() if isinstance(column, int) and -width <= column < width}
    below = [cells for cells in rows.cells[1 : SAMPLE_ROWS + 1] if len(cells) == width]
    label = [*used].index("label") if "label" in used else None
    return bool(used) and looks_like_header(
        [rows.cells[0][column] for column in used.values()],
        [[cells[column] for column in used.values()] for cells in below],
        label,
    )


def _column_index(column: str | int, header: list[str]) -> int | None:
    if isinstance(column, int):
        return column
    return header.index(column) if column in header else None


def _missing_column(
    file: Path, line: int, name: str, column: str | int, cells: Sequence[str], separator: str
) -> DataProblem:
    found = ", ".join(cells)[:200] or "nothing"
    described = f"no column {column!r}" + ("" if column == name else f" (for {name!r})")
    if len(cells) == 1 and separator == "," and "\t" in cells[0]:
        hint = 'The cells look tab-separated: set the separator to "\\t"'
    elif len(cells) == 1 and separator == "\t" and "," in cells[0]:
        hint = 'The cells look comma-separated: set the separator to ","'
    else:
        hint = f"Give the column of {name!r}: its name in the header, or its index from 0 to {len(cells) - 1}"
    return DataProblem(ProblemKind.MISSING_COLUMN, file, line, f"{described}; found {found}. {hint}", text=found)


def _max_splits(file_format: Table) -> int:
    """Return the maximum number of splits of a line; -1 for no limit."""
    indices = [column for column in file_format.columns.values() if isinstance(column, int)]
    return max(indices) if file_format.cells is Cells.REST and indices else -1
