"""Tables: TSV, CSV and similar."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regard.data.example import Document, Example, Pair
from regard.data.fields import OPTIONAL_FIELDS, REQUIRED_FIELDS, ExampleBuilder, check_fields, missing_field_error
from regard.data.formats import Cells, Header, Quoting, Table
from regard.tokenization.text_files import DataError, decode_line, format_suffix, read_lines, read_raw_lines

MAX_CELL_CHARACTERS = 2**24
"""Maximum length of a quoted cell, so that an unclosed quotation mark does not turn a whole file into one cell."""

POSITIONAL_TYPES = (Pair, Document)
"""Example types whose columns are taken in order if the table has no header and exactly the required columns."""

TableRow = tuple[int, list[str]]
"""Line number on which the row starts, cells."""


def read_table(files: Sequence[Path], file_format: Table, builder: ExampleBuilder) -> Iterator[Example]:
    """Read one example from each row."""
    for file in files:
        check_fields(builder.example_type, file_format.columns, file)
        yield from _read_file(file, file_format, builder)


def _read_file(file: Path, file_format: Table, builder: ExampleBuilder) -> Iterator[Example]:
    separator = file_format.separator or ("," if format_suffix(file) == ".csv" else "\t")
    quoting = file_format.quoting or (Quoting.NONE if separator == "\t" else Quoting.CSV)
    rows = (
        _quoted_rows(file, separator)
        if quoting is Quoting.CSV
        else _unquoted_rows(file, separator, max_splits(file_format))
    )
    first = next(rows, None)
    if first is None:
        return
    layout = detect_layout(file, file_format, builder.example_type, first, separator)
    body = rows if layout.has_header else chain([first], rows)
    width = len(first[1])
    for line, cells in body:
        if not cells or cells == [""]:
            continue
        if len(cells) != width if file_format.cells is not Cells.AT_LEAST else len(cells) < layout.min_cells:
            message = _ragged_message(len(cells), width, layout.min_cells, file_format.cells, quoting)
            raise DataError(file, line, message)
        yield builder.build({name: cells[index] for name, index in layout.column_indices.items()}, file, line)


@dataclass(frozen=True)
class ColumnLayout:
    """The columns of the fields of an example."""

    column_indices: Mapping[str, int]
    has_header: bool
    """Whether the first line is a header."""
    min_cells: int
    """Minimum number of cells of a row, so that every field has a cell."""


def detect_layout(
    file: Path, file_format: Table, example_type: type[Example], first: TableRow, separator: str
) -> ColumnLayout:
    """Find the columns of the fields from the format's `columns` and the first row, which may be a header."""
    line, cells = first
    required, optional = REQUIRED_FIELDS[example_type], OPTIONAL_FIELDS[example_type]
    columns = {name: file_format.columns.get(name, name) for name in required + optional}
    has_header = _is_header(file_format, example_type, cells)
    positional = example_type in POSITIONAL_TYPES and len(required) == len(cells)
    if not has_header and not file_format.columns and positional:
        columns = {name: index for index, name in enumerate(required)}
    indices = {}
    for name, column in columns.items():
        index = _column_index(column, cells if has_header else [])
        if index is not None and -len(cells) <= index < len(cells):
            indices[name] = index
        elif name in required or name in file_format.columns:
            raise missing_field_error(example_type, str(column), cells, file, line, _hint(name, cells, separator))
    return ColumnLayout(indices, has_header, max(index + 1 if index >= 0 else -index for index in indices.values()))


def _is_header(file_format: Table, example_type: type[Example], cells: list[str]) -> bool:
    if file_format.header is not Header.GUESS:
        return file_format.header is Header.FIRST_LINE
    required = [file_format.columns.get(name, name) for name in REQUIRED_FIELDS[example_type]]
    names = {column for column in (*required, *file_format.columns.values()) if isinstance(column, str)}
    by_name = any(isinstance(column, str) for column in file_format.columns.values())
    return by_name or (bool(names) and names <= set(cells))


def _column_index(column: str | int, header: list[str]) -> int | None:
    if isinstance(column, int):
        return column
    return header.index(column) if column in header else None


def _hint(name: str, cells: list[str], separator: str) -> str:
    if len(cells) == 1 and separator == "," and "\t" in cells[0]:
        return 'The cells look tab-separated: try Table(separator="\\t")'
    if len(cells) == 1 and separator == "\t" and "," in cells[0]:
        return 'The cells look comma-separated: try Table(separator=",")'
    return f'Set its column: Table(columns={{"{name}": header name or index 0 to {len(cells) - 1}}})'


def _ragged_message(num_cells: int, width: int, min_cells: int, rule: Cells, quoting: Quoting) -> str:
    expected = f"{width}, as in the first row" if rule is not Cells.AT_LEAST else f"at least {min_cells}"
    message = f"the row has {num_cells} cells, expected {expected}."
    if num_cells > width:
        hint = "quote it" if quoting is Quoting.CSV else "unquoted cells cannot contain it"
        return f"{message} Does a cell contain the separator ({hint})? To ignore extra cells, use Cells.AT_LEAST"
    return f"{message} Check for a line broken in two, or a missing column"


def _unquoted_rows(file: Path, separator: str, splits: int) -> Iterator[TableRow]:
    for line, text in read_lines(file):
        yield line, text.split(separator, splits)


def max_splits(file_format: Table) -> int:
    """Return the maximum number of splits of a line; -1 for no limit."""
    indices = [column for column in file_format.columns.values() if isinstance(column, int)]
    return max(indices) if file_format.cells is Cells.REST and indices else -1


def _quoted_rows(file: Path, separator: str) -> Iterator[TableRow]:
    """Yield rows with the line on which each starts. A quoted cell may contain line breaks."""
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    reader = csv.reader(
        (decode_line(line, file, number) for number, line in read_raw_lines(file)), delimiter=separator, strict=True
    )
    start_line = 1
    try:
        for cells in reader:
            yield start_line, cells
            start_line = reader.line_num + 1
    except csv.Error as error:
        message = f"the row that starts here is not valid CSV ({error})"
        hint = "Check for an unclosed quotation mark; if quotation marks are ordinary text, use Quoting.NONE"
        raise DataError(file, start_line, f"{message}. {hint}") from None
