"""The small files of a tokenizer: read without trusting them, written so that nobody ever sees half of one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TokenizerError(ValueError):
    """A tokenizer that cannot be read or asked: which file, what was found, what was expected, what to do."""


def read_text(path: Path) -> str:
    """A file's text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: byte {error.start + 1} is no UTF-8: this is no vocabulary, or damaged") from None
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        value = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise TokenizerError(f"{path}, line {error.lineno}: this is no valid JSON ({error.msg})") from None
    except RecursionError:
        raise TokenizerError(f"{path}: JSON nested too deeply to be a tokenizer's") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or an empty one where there is no such file."""
    return read_json(path) if path.is_file() else {}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder: each to a temporary name, flushed; when all are written, they take their names."""
    if folder.is_file():
        raise TokenizerError(f"{folder} is a file: give the name of a folder")
    folder.mkdir(parents=True, exist_ok=True)
    parts = {folder / name: folder / f".{name}.{os.getpid()}.part" for name in files}
    try:
        for path, part in parts.items():
            with part.open("wb") as stream:
                stream.write(files[path.name])
                stream.flush()
                os.fsync(stream.fileno())
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
