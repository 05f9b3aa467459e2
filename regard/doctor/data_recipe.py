"""What the doctor needs of a recipe: the task, the files, the tokenizer, the length."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.data.example import TASKS
from regard.doctor.tolerant_reader import Split
from regard.tokenization.text_files import DataError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The part of a recipe that is about data."""

    task: str
    files: Mapping[Split, list[Path]]
    columns: Mapping[str, str | int] = field(default_factory=dict)
    tokenizer: Path | None = None
    """A tokenizer that is there already; one that is yet to be trained knows nothing yet."""
    length: int | None = None


def read_recipe(path: Path) -> Recipe:
    """Read a recipe. Files are looked for beside it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(path, None, f"this is no TOML ({error})") from None
    task = found.get("task")
    if task not in TASKS:
        raise DataError(path, None, f"task is {task!r}; expected one of {', '.join(TASKS)}")
    data = _table(path, found, "data")
    files = {split: _files(path, data, split) for split in Split if split.value in data}
    if Split.TRAIN not in files:
        raise DataError(path, None, 'there are no training files; expected [data] with train = ["…"]')
    tokenizer = _table(path, found, "tokenizer").get("load")
    return Recipe(
        task=task,
        files=files,
        columns=_table(path, data, "columns"),
        tokenizer=None if tokenizer is None else path.parent / str(tokenizer),
        length=_length(path, data),
    )


def _table(path: Path, found: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name, {})
    if not isinstance(value, dict):
        raise DataError(path, None, f"{name} is {value!r}; expected a table, [{name}]")
    return value


def _files(path: Path, data: Mapping[str, Any], split: Split) -> list[Path]:
    value = data[split.value]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(path, None, f"data.{split} is {value!r}; expected a list of files")
    return [path.parent / name for name in names]


def _length(path: Path, data: Mapping[str, Any]) -> int | None:
    length = data.get("length")
    if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
        raise DataError(path, None, f"data.length is {length!r}; expected a number of tokens")
    return length
