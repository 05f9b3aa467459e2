"""Tolerant reader of tables and JSON Lines: invalid rows become findings."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.example import Example, Question
from regard.data.fields import OPTIONAL_FIELDS, REQUIRED_FIELDS
from regard.data.formats import Cells, JsonLines, Quoting, Table
from regard.data.readers.jsonl import extract_fields
from regard.data.readers.table import detect_layout, max_splits  # the same columns as the reader of `regard.data`
from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector
from regard.doctor.text_file import Escaping
from regard.doctor.tolerant_reader import TEXT_FIELDS, RecordBatch, Split, TolerantReader
from regard.tokenization.text_files import DataError, format_suffix

MAX_QUOTED_LINES = 1000
"""A quoted cell with more lines counts as unclosed."""

SplitRow = tuple[int, str, list[str]]
"""A row: the number of its first line, the text of that line, and the cells."""


def read_table_tolerant(reader: TolerantReader, file_format: Table, split: Split, file: Path) -> Iterator[RecordBatch]:
    """Yield the rows of a table. Rows with an unexpected number of cells are reported and skipped."""
    separator = file_format.separator or ("," if format_suffix(file) == ".csv" else "\t")
    quoting = file_format.quoting or (Quoting.NONE if separator == "\t" else Quoting.CSV)
    splitter = _RowSplitter(file, separator, quoting, max_splits(file_format), reader.collector)
    width, min_cells, column_indices = 0, 0, dict[str, int]()
    for block in reader.open(file).blocks(reader.on_bytes_read):
        rows = splitter.split(block.first_line, block.texts)
        if not column_indices and rows:
            width = Counter(len(cells) for _, _, cells in rows).most_common(1)[0][0]
            try:
                layout = detect_layout(file, file_format, reader.example_type, (rows[0][0], rows[0][2]), separator)
            except DataError as error:
                reader.collector.add_file(finding_kinds.NO_COLUMN, file, error.message, lines=[1])
                return
            column_indices, min_cells = dict(layout.column_indices), layout.min_cells
            rows = rows[1:] if layout.has_header else rows
        rows = _drop_ragged(rows, file_format, width, min_cells, file, reader.collector)
        yield from _to_record_batch(reader, split, file, rows, column_indices)
    rows = _drop_ragged(splitter.flush(), file_format, width, min_cells, file, reader.collector)
    yield from _to_record_batch(reader, split, file, rows, column_indices)


def _drop_ragged(
    rows: Sequence[SplitRow], file_format: Table, width: int, min_cells: int, file: Path, collector: FindingCollector
) -> list[SplitRow]:
    if {len(cells) for _, _, cells in rows} == {width} and width > 1:
        return list(rows)
    regular = []
    for line, text, cells in rows:
        if not text.strip() and len(cells) <= 1:
            collector.add_line(finding_kinds.EMPTY, file, line)
        elif len(cells) != width if file_format.cells is not Cells.AT_LEAST else len(cells) < min_cells:
            collector.add_line(finding_kinds.RAGGED, file, line, f"{len(cells)} columns, expected {width}: {text}")
        else:
            regular.append((line, text, cells))
    return regular


def _to_record_batch(
    reader: TolerantReader, split: Split, file: Path, rows: Sequence[SplitRow], column_indices: Mapping[str, int]
) -> Iterator[RecordBatch]:
    if rows:
        fields = {name: [cells[index] for _, _, cells in rows] for name, index in column_indices.items()}
        lines = [line for line, _, _ in rows]
        yield RecordBatch(split, lines, normalize_answers(reader.example_type, fields), dict.fromkeys(fields, file))


class _RowSplitter:
    """Splits lines into cells. A quoted cell may span several lines; an unclosed one is reported."""

    def __init__(self, file: Path, separator: str, quoting: Quoting, splits: int, collector: FindingCollector) -> None:
        self.file, self.collector = file, collector
        self.separator, self.quoting, self.splits = separator, quoting, splits
        self.open_lines: list[tuple[int, str]] = []

    def split(self, first: int, texts: Sequence[str]) -> list[SplitRow]:
        if self.quoting is Quoting.NONE:
            return [(line, text, text.split(self.separator, self.splits)) for line, text in enumerate(texts, first)]
        rows: list[SplitRow] = []
        for line, text in enumerate(texts, first):
            if not self.open_lines and '"' not in text:
                rows.append((line, text, text.split(self.separator, self.splits)))
            else:
                self.open_lines.append((line, text))
                self._try_close(rows, last=False)
        return rows

    def flush(self) -> list[SplitRow]:
        """Return the rows that are still open at the end of the file."""
        rows: list[SplitRow] = []
        while self.open_lines:
            self._try_close(rows, last=True)
        return rows

    def _try_close(self, rows: list[SplitRow], last: bool) -> None:
        """Make a row of the open lines if their quotes are closed, or report the first line as unbalanced."""
        line, text = self.open_lines[0]
        joined = "\n".join(text for _, text in self.open_lines)
        if (
            len(self.open_lines) > 1
            and '"' not in self.open_lines[-1][1]
            and not last
            and len(self.open_lines) <= MAX_QUOTED_LINES
        ):
            return
        try:
            cells = next(csv.reader([joined], delimiter=self.separator, strict=True))
        except csv.Error as error:
            if "end of data" in str(error) and not last and len(self.open_lines) <= MAX_QUOTED_LINES:
                return
            self._report_unbalanced(rows)
            return
        if self._spans_other_rows(len(cells)):
            self._report_unbalanced(rows)
            return
        rows.append((line, text, cells))
        self.open_lines = []

    def _spans_other_rows(self, width: int) -> bool:
        """Whether the lines inside a row look like rows: then two stray quotes were paired."""
        inner = [text.count(self.separator) + 1 == width and '""' not in text for _, text in self.open_lines[1:-1]]
        return width > 1 and len(inner) > 2 and all(inner)

    def _report_unbalanced(self, rows: list[SplitRow]) -> None:
        """Report a stray quote in the first open line, and split the following lines again without it."""
        (line, text), following = self.open_lines[0], self.open_lines[1:]
        self.collector.add_line(finding_kinds.UNBALANCED_QUOTE, self.file, line, text, text.find('"'))
        self.open_lines = []
        for next_line, next_text in following:
            rows.extend(self.split(next_line, [next_text]))


def read_jsonl_tolerant(
    reader: TolerantReader, file_format: JsonLines, split: Split, file: Path
) -> Iterator[RecordBatch]:
    """Yield the fields of the objects. Invalid JSON, missing keys and values of the wrong type are reported."""
    for block in reader.open(file, Escaping.JSON).blocks(reader.on_bytes_read):
        records: list[tuple[int, dict[str, Any]]] = []
        for line, text in enumerate(block.texts, block.first_line):
            values = _parse_line(reader, file_format, file, line, text)
            if values is not None:
                records.append((line, values))
        names = [
            name
            for name in REQUIRED_FIELDS[reader.example_type] + OPTIONAL_FIELDS[reader.example_type]
            if any(name in record for _, record in records)
        ]
        if records:
            fields = {name: [record.get(name, "") for _, record in records] for name in names}
            lines = [line for line, _ in records]
            files = dict.fromkeys(fields, file)
            batch = RecordBatch(split, lines, normalize_answers(reader.example_type, fields), files)
            batch.check_characters(reader.collector)
            yield batch


def _parse_line(
    reader: TolerantReader, file_format: JsonLines, file: Path, line: int, text: str
) -> dict[str, Any] | None:
    if not text.strip():
        reader.collector.add_line(finding_kinds.EMPTY, file, line)
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        position = error.pos if isinstance(error, json.JSONDecodeError) else 0
        reader.collector.add_line(finding_kinds.BROKEN_JSON, file, line, text, position)
        return None
    if not isinstance(record, dict):
        reader.collector.add_line(finding_kinds.BROKEN_JSON, file, line, text)
        return None
    try:
        values = extract_fields(record, file_format.keys, reader.example_type, file, line)
    except DataError:
        required, keys = REQUIRED_FIELDS[reader.example_type], file_format.keys
        missing = [name for name in required if keys.get(name, name) not in record]
        message = f"missing {' and '.join(missing)}; found {', '.join(record)}"
        reader.collector.add_line(finding_kinds.MISSING_KEY, file, line, message)
        return None
    return values if _check_text_fields(reader, file_format, file, line, values) else None


def _check_text_fields(
    reader: TolerantReader, file_format: JsonLines, file: Path, line: int, values: dict[str, Any]
) -> bool:
    """Convert values to the types of their fields; report a text field that is not a string and return False."""
    for name in TEXT_FIELDS:
        value = values.get(name, "")
        if isinstance(value, list) and file_format.join is not None and all(isinstance(item, str) for item in value):
            values[name] = file_format.join.join(value)
        elif not isinstance(value, str) and not (value is None and name == "pair"):
            reader.collector.add_line(
                finding_kinds.WRONG_TYPE, file, line, f"{name} is {json.dumps(value)[:60]}, expected a string"
            )
            return False
    if "label" in values:
        values["label"] = str(values["label"]) if values["label"] is not None else ""
    for name in ("words", "tags"):
        if isinstance(values.get(name), str):
            values[name] = values[name].split()
    return True


def normalize_answers(example_type: type[Example], fields: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """For questions: convert the answers to lists of (text, start), whatever their format."""
    if example_type is not Question:
        return fields
    count = len(fields["question"])
    answers = fields.pop("answers", [None] * count)
    texts, starts = fields.pop("answer", [None] * count), fields.pop("start", [None] * count)
    fields["answers"] = [_answer_pairs(*values) for values in zip(answers, texts, starts, strict=True)]
    fields.setdefault("id", [""] * count)
    return fields


def _answer_pairs(answers: Any, text: Any, start: Any) -> list[tuple[str, int | None]]:
    if isinstance(answers, Mapping):
        texts, starts = answers.get("text", ()), answers.get("answer_start", ())
        return [(str(answer), offset) for answer, offset in zip(texts, starts, strict=False)]
    if isinstance(answers, list):
        return [
            (str(answer.get("text", "")), answer.get("answer_start"))
            if isinstance(answer, dict)
            else (str(answer), None)
            for answer in answers
        ]
    if isinstance(answers, str) and answers:
        return [(answers, None)]
    if text:
        return [(str(text), int(start) if str(start).isdecimal() else None)]
    return []
