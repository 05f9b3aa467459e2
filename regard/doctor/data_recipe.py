"""The part of a recipe that the doctor reads: task, files, columns, tokenizer and maximum length."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.data.example import EXAMPLE_TYPES
from regard.doctor.split_reader import Split
from regard.tokenization.text_files import DataError
from regard.training.recipe.legacy_keys import upgrade


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """The data settings of a recipe."""

    task: str
    files: Mapping[Split, list[Path]]
    columns: Mapping[str, str | int] = field(default_factory=dict)
    tokenizer: Path | None = None
    """An existing tokenizer; None if the recipe trains one."""
    max_length: int | None = None


def read_data_recipe(path: Path) -> DataRecipe:
    """Read a recipe. File names are relative to its folder."""
    try:
        recipe, _ = upgrade(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(path, None, f"invalid TOML ({error})") from None
    task = recipe.get("task")
    if task not in EXAMPLE_TYPES:
        raise DataError(path, None, f"task is {task!r}; expected one of {', '.join(EXAMPLE_TYPES)}")
    data = _table(path, recipe, "data")
    files = {split: _files(path, data, split) for split in Split if split.value in data}
    if Split.TRAIN not in files:
        raise DataError(path, None, 'no training files: expected [data] with train = ["…"]')
    tokenizer = _table(path, recipe, "tokenizer").get("load")
    return DataRecipe(
        task=task,
        files=files,
        columns=_table(path, data, "columns"),
        tokenizer=None if tokenizer is None else path.parent / str(tokenizer),
        max_length=_max_length(path, data),
    )


def _table(path: Path, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = values.get(name, {})
    if not isinstance(value, dict):
        raise DataError(path, None, f"{name} is {value!r}; expected a table, [{name}]")
    return value


def _files(path: Path, data: Mapping[str, Any], split: Split) -> list[Path]:
    value = data[split.value]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(path, None, f"data.{split} is {value!r}; expected a list of files")
    return [path.parent / name for name in names]


def _max_length(path: Path, data: Mapping[str, Any]) -> int | None:
    value = data.get("max_length")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise DataError(path, None, f"data.max_length is {value!r}; expected a number of tokens")
    return value
