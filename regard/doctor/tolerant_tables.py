"""Tables and JSON Lines, row by row, whatever is wrong with some of them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.example import Example, Question
from regard.data.fields import NEEDED, OPTIONAL
from regard.data.formats import Cells, JsonLines, Quoting, Table
from regard.data.readers.jsonl import pick
from regard.data.readers.table import layout_of, splits_of  # the columns must be those that the reader takes
from regard.doctor import finding_kinds
from regard.doctor.finding import Ledger
from regard.doctor.text_file import Written
from regard.doctor.tolerant_reader import Reading, Rows, Split
from regard.tokenization.text_files import DataError, kind_of

LONGEST_ROW = 1000
"""Lines. A quoted cell that goes on for longer was never closed."""

Cut = tuple[int, str, list[str]]
"""A row: its first line, that line's text, its cells."""


def read_table(reading: Reading, form: Table, split: Split, file: Path) -> Iterator[Rows]:
    """A table's rows. Those with another number of cells than most are noted and left out."""
    separator = form.separator or ("," if kind_of(file) == ".csv" else "\t")
    quoting = form.quoting or (Quoting.NONE if separator == "\t" else Quoting.CSV)
    cutter = _Cutter(file, separator, quoting, splits_of(form), reading.ledger)
    width, needs, places = 0, 0, dict[str, int]()
    for block in reading.open(file).blocks(reading.tell):
        rows = cutter.cut(block.first, block.texts)
        if not places and rows:
            width = Counter(len(cells) for _, _, cells in rows).most_common(1)[0][0]
            try:
                layout = layout_of(file, form, reading.kind, (rows[0][0], rows[0][2]), separator)
            except DataError as error:
                reading.ledger.say(finding_kinds.NO_COLUMN, file, error.said, lines=[1])
                return
            places, needs = dict(layout.places), layout.needs
            rows = rows[1:] if layout.named else rows
        yield from _columns(reading, split, file, _even(rows, form, width, needs, file, reading.ledger), places)
    yield from _columns(reading, split, file, _even(cutter.rest(), form, width, needs, file, reading.ledger), places)


def _even(rows: Sequence[Cut], form: Table, width: int, needs: int, file: Path, ledger: Ledger) -> list[Cut]:
    if {len(cells) for _, _, cells in rows} == {width} and width > 1:
        return list(rows)
    even = []
    for line, text, cells in rows:
        if not text.strip() and len(cells) <= 1:
            ledger.note(finding_kinds.EMPTY, file, line)
        elif len(cells) != width if form.cells is not Cells.AT_LEAST else len(cells) < needs:
            ledger.note(finding_kinds.RAGGED, file, line, f"{len(cells)} columns, the others have {width}: {text}")
        else:
            even.append((line, text, cells))
    return even


def _columns(
    reading: Reading, split: Split, file: Path, rows: Sequence[Cut], places: Mapping[str, int]
) -> Iterator[Rows]:
    if rows:
        fields = {name: [cells[place] for _, _, cells in rows] for name, place in places.items()}
        lines = [line for line, _, _ in rows]
        yield Rows(split, lines, answers_joined(reading.kind, fields), dict.fromkeys(fields, file))


class _Cutter:
    """Lines to cells. A quoted cell may go over several lines; one that is never closed is noted."""

    def __init__(self, file: Path, separator: str, quoting: Quoting, splits: int, ledger: Ledger) -> None:
        self.file, self.separator, self.quoting, self.splits, self.ledger = file, separator, quoting, splits, ledger
        self.open: list[tuple[int, str]] = []

    def cut(self, first: int, texts: Sequence[str]) -> list[Cut]:
        if self.quoting is Quoting.NONE:
            return [(line, text, text.split(self.separator, self.splits)) for line, text in enumerate(texts, first)]
        rows: list[Cut] = []
        for line, text in enumerate(texts, first):
            if not self.open and '"' not in text:
                rows.append((line, text, text.split(self.separator, self.splits)))
            else:
                self.open.append((line, text))
                self._close(rows, last=False)
        return rows

    def rest(self) -> list[Cut]:
        """What was still open at the end of the file."""
        rows: list[Cut] = []
        while self.open:
            self._close(rows, last=True)
        return rows

    def _close(self, rows: list[Cut], last: bool) -> None:
        """Make a row of the open lines if their quotes are closed, or give the first of them up."""
        line, text = self.open[0]
        whole = "\n".join(text for _, text in self.open)
        if len(self.open) > 1 and '"' not in self.open[-1][1] and not last and len(self.open) <= LONGEST_ROW:
            return
        try:
            cells = next(csv.reader([whole], delimiter=self.separator, strict=True))
        except csv.Error as error:
            if "end of data" in str(error) and not last and len(self.open) <= LONGEST_ROW:
                return
            self._give_up(rows)
            return
        if self._swallowed(len(cells)):
            self._give_up(rows)
            return
        rows.append((line, text, cells))
        self.open = []

    def _swallowed(self, width: int) -> bool:
        """Whether the lines inside a row look like rows themselves: then two stray quotes met."""
        inner = [text.count(self.separator) + 1 == width and '""' not in text for _, text in self.open[1:-1]]
        return width > 1 and len(inner) > 2 and all(inner)

    def _give_up(self, rows: list[Cut]) -> None:
        """The first open line has a stray quote: what follows it is read as if it had none."""
        (line, text), rest = self.open[0], self.open[1:]
        self.ledger.note(finding_kinds.UNBALANCED_QUOTE, self.file, line, text, text.find('"'))
        self.open = []
        for number, one in rest:
            rows.extend(self.cut(number, [one]))


def read_json_lines(reading: Reading, form: JsonLines, split: Split, file: Path) -> Iterator[Rows]:
    """The objects' fields. Lines that are no JSON, lack a key or hold no text where text is needed are noted."""
    for block in reading.open(file, Written.ESCAPED).blocks(reading.tell):
        kept: list[tuple[int, dict[str, Any]]] = []
        for line, text in enumerate(block.texts, block.first):
            values = _object(reading, form, file, line, text)
            if values is not None:
                kept.append((line, values))
        names = [name for name in NEEDED[reading.kind] + OPTIONAL[reading.kind] if any(name in one for _, one in kept)]
        if kept:
            fields = {name: [one.get(name, "") for _, one in kept] for name in names}
            lines = [line for line, _ in kept]
            rows = Rows(split, lines, answers_joined(reading.kind, fields), dict.fromkeys(fields, file))
            rows.look(reading.ledger)
            yield rows


def _object(reading: Reading, form: JsonLines, file: Path, line: int, text: str) -> dict[str, Any] | None:
    if not text.strip():
        reading.ledger.note(finding_kinds.EMPTY, file, line)
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else 0
        reading.ledger.note(finding_kinds.BROKEN_JSON, file, line, text, at)
        return None
    if not isinstance(found, dict):
        reading.ledger.note(finding_kinds.BROKEN_JSON, file, line, text)
        return None
    try:
        values = pick(found, form.keys, reading.kind, file, line)
    except DataError:
        absent = [name for name in NEEDED[reading.kind] if form.keys.get(name, name) not in found]
        reading.ledger.note(
            finding_kinds.MISSING_KEY, file, line, f"{' and '.join(absent)} missing: found {', '.join(found)}"
        )
        return None
    return values if _texts(reading, form, file, line, values) else None


def _texts(reading: Reading, form: JsonLines, file: Path, line: int, values: dict[str, Any]) -> bool:
    """Make texts of the values that should be, or say which is none."""
    for name in ("source", "target", "text", "pair", "question", "context"):
        value = values.get(name, "")
        if isinstance(value, list) and form.join is not None and all(isinstance(one, str) for one in value):
            values[name] = form.join.join(value)
        elif not isinstance(value, str) and not (value is None and name == "pair"):
            reading.ledger.note(finding_kinds.WRONG_TYPE, file, line, f"{name} is {json.dumps(value)[:60]}")
            return False
    if "label" in values:
        values["label"] = str(values["label"]) if values["label"] is not None else ""
    for name in ("words", "tags"):
        if isinstance(values.get(name), str):
            values[name] = values[name].split()
    return True


def answers_joined(kind: type[Example], fields: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """For questions: answers as lists of (text, start), however the file has them."""
    if kind is not Question:
        return fields
    count = len(fields["question"])
    given = fields.pop("answers", [None] * count)
    texts, starts = fields.pop("answer", [None] * count), fields.pop("start", [None] * count)
    fields["answers"] = [_pairs(*one) for one in zip(given, texts, starts, strict=True)]
    fields.setdefault("id", [""] * count)
    return fields


def _pairs(given: Any, text: Any, start: Any) -> list[tuple[str, int | None]]:
    if isinstance(given, Mapping):
        return [(str(one), at) for one, at in zip(given.get("text", ()), given.get("answer_start", ()), strict=False)]
    if isinstance(given, list):
        return [
            (str(one.get("text", "")), one.get("answer_start")) if isinstance(one, dict) else (str(one), None)
            for one in given
        ]
    if isinstance(given, str) and given:
        return [(given, None)]
    if text:
        return [(str(text), int(start) if str(start).isdecimal() else None)]
    return []
