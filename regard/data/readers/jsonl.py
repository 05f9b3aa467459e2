"""JSON Lines: one object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.data.example import Example
from regard.data.fields import NEEDED, OPTIONAL, Builder, check_fields, missing
from regard.data.formats import JsonLines
from regard.tokenization.text_files import DataError, lines


@runtime_checkable
class Records(Protocol):
    """Any sequence of dictionaries: a list, or a Hugging Face `datasets.Dataset`, which is no `Sequence` to Python."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


def read_jsonl(files: Sequence[Path], form: JsonLines, builder: Builder) -> Iterator[Example]:
    """An example from each line that is not empty."""
    for file in files:
        check_fields(builder.kind, form.keys, file)
        for line, text in lines(file):
            if text and not text.isspace():
                yield builder.build(pick(_object(text, file, line), form.keys, builder.kind, file, line), file, line)


def read_records(rows: Records, form: JsonLines, builder: Builder) -> Iterator[Example]:
    """An example from each dictionary of a sequence, such as a `datasets.Dataset`."""
    file = Path("rows")
    check_fields(builder.kind, form.keys, file)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(file, number, f"expected a dictionary, found {type(row).__name__}")
        yield builder.build(pick(row, form.keys, builder.kind, file, number), file, number)


def pick(
    found: Mapping[str, Any], keys: Mapping[str, str], kind: type[Example], file: Path, line: int
) -> dict[str, Any]:
    """The values of the fields, from wherever their keys lead."""
    values = {}
    for name in NEEDED[kind] + OPTIONAL[kind]:
        there, value = _follow(found, keys.get(name, name))
        if there:
            values[name] = value
        elif name in NEEDED[kind] or name in keys:
            raise missing(kind, keys.get(name, name), found, file, line, f'keys={{"{name}": "..."}}')
    return values


def _follow(found: Any, key: str) -> tuple[bool, Any]:
    """What a key leads to: itself, or through its dots. First whether there is anything."""
    if isinstance(found, Mapping) and key in found:
        return True, found[key]
    first, dot, rest = key.partition(".")
    if isinstance(found, Mapping) and first in found and dot:
        return _follow(found[first], rest)
    if isinstance(found, list | tuple) and first.isdecimal() and int(first) < len(found):
        return _follow(found[int(first)], rest) if dot else (True, found[int(first)])
    return False, None


def _object(text: str, file: Path, line: int) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        hint = " Is the file one JSON document? Each line should be an object of its own" if line == 1 else ""
        raise DataError(file, line, f"this is no JSON ({error.msg}, character {error.pos + 1}).{hint}") from None
    except (RecursionError, ValueError) as error:
        raise DataError(file, line, f"this JSON cannot be read ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise DataError(file, line, f"expected a JSON object, {{...}}, found {text[:40]!r}")
    return value
