"""TOML: which line a key stands on, all keys side by side, and writing. (Reading is Python's own `tomllib`.)"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SECTION = re.compile(r"\s*\[+\s*([^\]\s]+)\s*\]+")
KEY = re.compile(r"""\s*([A-Za-z0-9_\-."']+)\s*=""")
BARE = re.compile(r"[A-Za-z0-9_-]+")


def line_of(text: str, key: Sequence[str | int]) -> int | None:
    """The line that a key stands on, or the table or list that it is written in."""
    lines: dict[tuple[str, ...], int] = {}
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := SECTION.match(line):
            section = _names(match[1])
            lines.setdefault(section, number)
        elif match := KEY.match(line):
            lines.setdefault((*section, *_names(match[1])), number)
    names = tuple(str(part) for part in key)
    return next((lines[names[:end]] for end in range(len(names), 0, -1) if names[:end] in lines), None)


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(name.strip().strip("\"'") for name in dotted.split("."))


def flat(text: str) -> dict[str, str]:
    """All keys of a document with the tables they stand in, and their values as they are written."""
    return dict(_flat(tomllib.loads(text), ""))


def _flat(values: Mapping[str, Any], table: str) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{table}{key}.")
        else:
            yield f"{table}{key}", _value(value)


def write(values: Mapping[str, Any]) -> str:
    """A document: plain values first, then a section for each table; tables within are written inline."""
    plain = [f"{_key(key)} = {_value(value)}" for key, value in values.items() if not isinstance(value, Mapping)]
    parts = ["\n".join(plain)] if plain else []
    for key, table in values.items():
        if isinstance(table, Mapping):
            lines = [f"{_key(name)} = {_value(value)}" for name, value in table.items()]
            parts.append("\n".join([f"[{_key(key)}]", *lines]))
    return "\n\n".join(parts) + "\n"


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
        case str():
            return _text(value)
        case Mapping():
            inside = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case list() | tuple():
            return f"[{', '.join(_value(one) for one in value)}]"
    raise TypeError(f"TOML has no {type(value).__name__}: {value!r}")


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


def _text(value: str) -> str:
    """JSON's strings are TOML's, but for the character DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
