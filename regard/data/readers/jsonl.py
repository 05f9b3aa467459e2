"""JSON Lines: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.data.example import Example
from regard.data.fields import OPTIONAL_FIELDS, REQUIRED_FIELDS, ExampleBuilder, check_fields, missing_field_error
from regard.data.formats import JsonLines
from regard.tokenization.text_files import DataError, read_lines


@runtime_checkable
class Records(Protocol):
    """Any sequence of dictionaries: a list, or a Hugging Face `datasets.Dataset`, which is not a Python `Sequence`."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


def read_jsonl(files: Sequence[Path], file_format: JsonLines, builder: ExampleBuilder) -> Iterator[Example]:
    """Read one example from each non-empty line."""
    keys, example_type = file_format.keys, builder.example_type
    for file in files:
        check_fields(example_type, keys, file)
        for line, text in read_lines(file):
            if text and not text.isspace():
                values = extract_fields(_parse_object(text, file, line), keys, example_type, file, line)
                yield builder.build(values, file, line)


def read_records(records: Records, file_format: JsonLines, builder: ExampleBuilder) -> Iterator[Example]:
    """Read one example from each dictionary of a sequence, such as a `datasets.Dataset`."""
    file = Path("rows")
    check_fields(builder.example_type, file_format.keys, file)
    for number, row in enumerate(records, 1):
        if not isinstance(row, Mapping):
            raise DataError(file, number, f"expected a dictionary, found {type(row).__name__}")
        yield builder.build(extract_fields(row, file_format.keys, builder.example_type, file, number), file, number)


def extract_fields(
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
            hint = f'Set its key: JsonLines(keys={{"{name}": "..."}})'
            raise missing_field_error(example_type, key, record, file, line, hint)
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
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        hint = " Is the file a single JSON document? JSON Lines needs one object per line" if line == 1 else ""
        raise DataError(file, line, f"invalid JSON ({error.msg}, character {error.pos + 1}).{hint}") from None
    except (RecursionError, ValueError) as error:
        raise DataError(file, line, f"the JSON cannot be parsed ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise DataError(file, line, f"expected a JSON object, {{...}}, found {text[:40]!r}")
    return value
