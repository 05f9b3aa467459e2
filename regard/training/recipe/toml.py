"""TOML: find the line of a key, flatten, and write. (`tomllib` of the standard library reads it.)"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SECTION_PATTERN = re.compile(r"\s*\[+\s*([^\]\s]+)\s*\]+")
KEY_PATTERN = re.compile(r"""\s*([A-Za-z0-9_\-."']+)\s*=""")
MAX_DEPTH = 32
"""Maximum nesting of tables and lists. A recipe has four levels."""
BARE_KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]+")


def find_line(text: str, key: Sequence[str | int]) -> int | None:
    """Return the line of a key, or of the innermost table or list that contains it."""
    lines: dict[tuple[str, ...], int] = {}
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := SECTION_PATTERN.match(line):
            section = _split_key(match[1])
            lines.setdefault(section, number)
        elif match := KEY_PATTERN.match(line):
            lines.setdefault((*section, *_split_key(match[1])), number)
    names = tuple(str(part) for part in key)
    return next((lines[names[:end]] for end in range(len(names), 0, -1) if names[:end] in lines), None)


def _split_key(dotted: str) -> tuple[str, ...]:
    return tuple(name.strip().strip("\"'") for name in dotted.split("."))


def parse(text: str) -> dict[str, Any]:
    """Parse a document. Raises `tomllib.TOMLDecodeError`, also for one that is nested too deeply."""
    try:
        values = tomllib.loads(text)
        _check_depth(values)
    except RecursionError:
        raise tomllib.TOMLDecodeError("nested too deeply") from None
    return values


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise RecursionError
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(inner, depth + 1)


def flatten(text: str) -> dict[str, str]:
    """Return all values of a document as TOML, by dotted key."""
    return dict(_flatten(parse(text), ""))


def _flatten(values: Mapping[str, Any], table: str) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{table}{key}.")
        else:
            yield f"{table}{key}", _format_value(value)


def dumps(values: Mapping[str, Any]) -> str:
    """Write a document: scalar values first, then a section for each table; nested tables are inline."""
    scalars = [
        f"{_format_key(key)} = {_format_value(value)}"
        for key, value in values.items()
        if not isinstance(value, Mapping)
    ]
    parts = ["\n".join(scalars)] if scalars else []
    for key, table in values.items():
        if isinstance(table, Mapping):
            lines = [f"{_format_key(name)} = {_format_value(value)}" for name, value in table.items()]
            parts.append("\n".join([f"[{_format_key(key)}]", *lines]))
    return "\n\n".join(parts) + "\n"


def _format_key(key: str) -> str:
    return key if BARE_KEY_PATTERN.fullmatch(key) else _format_string(key)


def _format_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _format_number(value)
        case str():
            return _format_string(value)
        case Mapping():
            items = ", ".join(f"{_format_key(key)} = {_format_value(item)}" for key, item in value.items())
            return f"{{ {items} }}" if items else "{}"
        case list() | tuple():
            return f"[{', '.join(_format_value(item) for item in value)}]"
    raise TypeError(f"TOML has no type for {type(value).__name__}: {value!r}")


def _format_number(value: float) -> str:
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


def _format_string(value: str) -> str:
    """Write a string as JSON does, except that TOML requires an escape for the character DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
