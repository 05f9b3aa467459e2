"""Predictions in files: one schema for all tasks, as JSON Lines or as a table.

JSON Lines     one object for each result, with all its fields (`Result.as_json`)
TSV            a header with the names of the fields, and one line for each result; text as it is, with tabs, line
               breaks and backslashes escaped; other values as JSON; an empty cell for a field that a result does not
               have
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from regard.tokenization.text_files import DataError, read_lines
from regard.training.task import Result

ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
UNESCAPES = {escaped: character for character, escaped in ESCAPES.items()}


def prediction_columns(result: Result) -> list[str]:
    """Return the columns of a table of results like this one: its JSON keys, then all other fields."""
    names = [field.name for field in fields(result)]  # type: ignore[arg-type] # results are dataclasses
    return list(dict.fromkeys([*result.as_json(), *names]))


def prediction_line(values: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the line of a table for the JSON values of a result."""
    return "\t".join(_cell(values[name]) if name in values else "" for name in columns)


def read_predictions(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON values of the results in a file: a table if its name ends with .tsv, else JSON Lines."""
    columns: list[str] | None = None
    is_table = Path(path).name.removesuffix(".gz").endswith(".tsv")
    for number, line in read_lines(Path(path)):
        if is_table and columns is None:
            columns = line.split("\t")
        elif columns is not None:
            cells = line.split("\t")
            if len(cells) != len(columns):
                message = f"{len(cells)} cells, but the header has {len(columns)}: write the file with --tsv again"
                raise DataError(Path(path), number, message)
            yield {name: _value(cell) for name, cell in zip(columns, cells, strict=True) if cell}
        else:
            yield _object(line, Path(path), number)


def _cell(value: Any) -> str:
    """Return the cell of a value. A text that could be read as JSON, and the empty text, are written as JSON."""
    if isinstance(value, str) and value and not _is_json(value):
        return "".join(ESCAPES.get(character, character) for character in value)
    return json.dumps(value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _value(cell: str) -> Any:
    if _is_json(cell):
        return json.loads(cell)
    parts, place = [], 0
    while place < len(cell):
        pair = cell[place : place + 2]
        parts.append(UNESCAPES.get(pair, cell[place]))
        place += 2 if pair in UNESCAPES else 1
    return "".join(parts)


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise DataError(path, number, f"not JSON ({error}): write the file with --json") from None
    if not isinstance(values, dict):
        raise DataError(path, number, "expected a JSON object: write the file with --json")
    return values
