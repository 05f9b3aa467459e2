"""JSON Lines: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.data.example import Example
from regard.data.fields import OPTIONAL_FIELDS, REQUIRED_FIELDS, FieldConverter, check_fields
from regard.data.formats import JsonLines
from regard.data.line_blocks import LineBlock
from regard.data.problem import DataProblem, ProblemKind
from regard.data.record_batch import RecordBatch, make_batch

RECORDS_PER_BATCH = 1024


@runtime_checkable
class Records(Protocol):
    """Any sequence of dictionaries: a list, or a Hugging Face `datasets.Dataset`, which is not a Python `Sequence`."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


def parse_jsonl(
    file: Path, blocks: Iterable[LineBlock], file_format: JsonLines, converter: FieldConverter
) -> Iterator[RecordBatch]:
    """Yield the objects of a file."""
    try:
        check_fields(converter.example_type, file_format.keys, file)
    except DataProblem as problem:
        yield make_batch(file, (), {}, [problem])
        return
    for block in blocks:
        problems: list[DataProblem] = []
        lines: list[int] = []
        rows: list[dict[str, Any]] = []
        for line, text in enumerate(block.texts, block.first_line):
            try:
                record = _parse_object(text, file, line)
                rows.append(_extract_fields(record, file_format.keys, converter.example_type, file, line))
                lines.append(line)
            except DataProblem as problem:
                problems.append(problem)
        yield converter.convert_rows(file, lines, rows, problems)


def parse_records(records: Records, file_format: JsonLines, converter: FieldConverter) -> Iterator[RecordBatch]:
    """Yield the dictionaries of a sequence, such as a `datasets.Dataset`."""
    file = Path("rows")
    check_fields(converter.example_type, file_format.keys, file)
    numbered = enumerate(records, 1)
    while group := list(islice(numbered, RECORDS_PER_BATCH)):
        problems: list[DataProblem] = []
        lines: list[int] = []
        rows: list[dict[str, Any]] = []
        for number, record in group:
            try:
                if not isinstance(record, Mapping):
                    message = f"expected a dictionary, found {type(record).__name__}"
                    raise DataProblem(ProblemKind.WRONG_TYPE, file, number, message)
                rows.append(_extract_fields(record, file_format.keys, converter.example_type, file, number))
                lines.append(number)
            except DataProblem as problem:
                problems.append(problem)
        yield converter.convert_rows(file, lines, rows, problems)


def _extract_fields(
    record: Mapping[str, Any], keys: Mapping[str, str], example_type: type[Example], file: Path, line: int
) -> dict[str, Any]:
    """Look up the values of the fields of an example type. `keys` maps field names to keys or dotted paths."""
    values = {}
    for name in REQUIRED_FIELDS[example_type] + OPTIONAL_FIELDS[example_type]:
        key = keys.get(name, name)
        exists, value = _lookup(record, key)
        if exists:
            values[name] = value
        elif name in REQUIRED_FIELDS[example_type] or name in keys:
            found = ", ".join(map(str, record))[:200] or "nothing"
            described = f"no key {key!r}" + ("" if key == name else f" (for {name!r})")
            message = f"{described}; found {found}. Give the key of {name!r} if it has another name"
            raise DataProblem(ProblemKind.MISSING_KEY, file, line, message, text=f"missing {key}; found {found}")
    return values


def _lookup(container: Any, key: str) -> tuple[bool, Any]:
    """Return whether a key or dotted path exists, and its value. A key that contains dots itself comes first."""
    if isinstance(container, Mapping) and key in container:
        return True, container[key]
    first, dot, remainder = key.partition(".")
    if isinstance(container, Mapping) and first in container and dot:
        return _lookup(container[first], remainder)
    if isinstance(container, list | tuple) and first.isdecimal() and int(first) < len(container):
        return _lookup(container[int(first)], remainder) if dot else (True, container[int(first)])
    return False, None


def _parse_object(text: str, file: Path, line: int) -> dict[str, Any]:
    if not text or text.isspace():
        raise DataProblem(ProblemKind.BLANK_ROW, file, line, "the line is empty")

    def problem(message: str, position: int = 0) -> DataProblem:
        return DataProblem(ProblemKind.INVALID_JSON, file, line, message, text=text, position=position)

    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        hint = " Is the file a single JSON document? JSON Lines needs one object per line" if line == 1 else ""
        raise problem(f"invalid JSON ({error.msg}, character {error.pos + 1}).{hint}", error.pos) from None
    except (RecursionError, ValueError) as error:
        raise problem(f"the JSON cannot be parsed ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise problem(f"expected a JSON object, {{...}}, found {text[:40]!r}")
    return value
