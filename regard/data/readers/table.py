"""Tables: TSV, CSV and the like."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regard.data.example import Example, Pair, Plain
from regard.data.fields import NEEDED, OPTIONAL, Builder, check_fields, missing
from regard.data.formats import Cells, Header, Quoting, Table
from regard.tokenization.text_files import DataError, decode, kind_of, lines, raw_lines

LONGEST_CELL = 2**24
"""Characters. A quotation mark that is never closed must not swallow a file."""

ORDERED = (Pair, Plain)
"""Kinds whose columns need no names where there are just as many: everyone writes source, then target."""

Row = tuple[int, list[str]]


def read_table(files: Sequence[Path], form: Table, builder: Builder) -> Iterator[Example]:
    """An example from each row."""
    for file in files:
        check_fields(builder.kind, form.columns, file)
        yield from _one(file, form, builder)


def _one(file: Path, form: Table, builder: Builder) -> Iterator[Example]:
    separator = form.separator or ("," if kind_of(file) == ".csv" else "\t")
    quoting = form.quoting or (Quoting.NONE if separator == "\t" else Quoting.CSV)
    rows = _quoted(file, separator) if quoting is Quoting.CSV else _plain(file, separator, splits_of(form))
    first = next(rows, None)
    if first is None:
        return
    layout = layout_of(file, form, builder.kind, first, separator)
    body = rows if layout.named else chain([first], rows)
    width = len(first[1])
    for line, cells in body:
        if not cells or cells == [""]:
            continue
        if len(cells) != width if form.cells is not Cells.AT_LEAST else len(cells) < layout.needs:
            raise DataError(file, line, _ragged(len(cells), width, layout.needs, form.cells, quoting))
        yield builder.build({name: cells[place] for name, place in layout.places.items()}, file, line)


@dataclass(frozen=True)
class Layout:
    """Where the fields of an example stand in a line."""

    places: Mapping[str, int]
    named: bool
    """Whether the first line is a header."""
    needs: int
    """The cells that a row must have so that every field has one."""


def layout_of(file: Path, form: Table, kind: type[Example], first: Row, separator: str) -> Layout:
    """Where the fields stand, by the header or by what was asked for."""
    line, cells = first
    asked = {name: form.columns.get(name, name) for name in NEEDED[kind] + OPTIONAL[kind]}
    named = _is_header(form, kind, cells)
    if not named and not form.columns and kind in ORDERED and len(NEEDED[kind]) == len(cells):
        asked = {name: place for place, name in enumerate(NEEDED[kind])}
    places = {}
    for name, column in asked.items():
        place = _place(column, cells if named else [])
        if place is not None and -len(cells) <= place < len(cells):
            places[name] = place
        elif name in NEEDED[kind] or name in form.columns:
            raise missing(kind, str(column), cells, file, line, _how(name, cells, separator))
    return Layout(places, named, max(place + 1 if place >= 0 else -place for place in places.values()))


def _is_header(form: Table, kind: type[Example], cells: list[str]) -> bool:
    if form.header is not Header.GUESS:
        return form.header is Header.FIRST_LINE
    asked = [form.columns.get(name, name) for name in NEEDED[kind]]
    names = {column for column in (*asked, *form.columns.values()) if isinstance(column, str)}
    by_name = any(isinstance(column, str) for column in form.columns.values())
    return by_name or (bool(names) and names <= set(cells))


def _place(column: str | int, header: list[str]) -> int | None:
    if isinstance(column, int):
        return column
    return header.index(column) if column in header else None


def _how(name: str, cells: list[str], separator: str) -> str:
    if len(cells) == 1 and separator == "," and "\t" in cells[0]:
        return 'the cells look separated by tabs, so try Table(separator="\\t")'
    if len(cells) == 1 and separator == "\t" and "," in cells[0]:
        return 'the cells look separated by commas, so try Table(separator=",")'
    return f'columns={{"{name}": a name in the first line, or a number from 0 to {len(cells) - 1}}}'


def _ragged(found: int, width: int, needs: int, rule: Cells, quoting: Quoting) -> str:
    expected = f"{width}, as in the first row" if rule is not Cells.AT_LEAST else f"at least {needs}"
    said = f"the row has {found} cells, expected {expected}."
    if found > width:
        inside = "a text that holds the separator " + ("must be quoted" if quoting is Quoting.CSV else "cannot be told")
        return (
            f"{said} Is a separator part of a text? ({inside}.) If the cells at the end do not matter: Cells.AT_LEAST"
        )
    return f"{said} Is a line broken in two, or a column missing?"


def _plain(file: Path, separator: str, splits: int) -> Iterator[Row]:
    for line, text in lines(file):
        yield line, text.split(separator, splits)


def splits_of(form: Table) -> int:
    """How often a line is split at most; -1 is as often as it can be."""
    numbers = [column for column in form.columns.values() if isinstance(column, int)]
    return max(numbers) if form.cells is Cells.REST and numbers else -1


def _quoted(file: Path, separator: str) -> Iterator[Row]:
    """Rows with the line that each begins on. A quoted cell may hold line ends."""
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(
        (decode(line, file, number) for number, line in raw_lines(file)), delimiter=separator, strict=True
    )
    begun = 1
    try:
        for cells in reader:
            yield begun, cells
            begun = reader.line_num + 1
    except csv.Error as error:
        said = f"the row that begins here is no CSV ({error}). Is a quotation mark left open, or part of a text?"
        raise DataError(file, begun, f"{said} If marks are plain text in this file: Quoting.NONE") from None
