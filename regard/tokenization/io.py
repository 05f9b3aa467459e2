"""Read and write the small files of a tokenizer. Reading validates them; writing is atomic."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TokenizerError(ValueError):
    """A tokenizer file or call is invalid. The message names the file, what was found and expected, and what to do."""


def read_text(path: Path) -> str:
    """Read a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"{path}: byte {error.start + 1} is not valid UTF-8: not a vocabulary file, or corrupt"
        ) from None
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        value = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise TokenizerError(f"{path}, line {error.lineno}: invalid JSON ({error.msg})") from None
    except RecursionError:
        raise TokenizerError(f"{path}: JSON is nested too deeply for a tokenizer file") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def read_json_if_exists(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; return an empty one if the file does not exist."""
    return read_json(path) if path.is_file() else {}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder atomically: to temporary names with fsync, then rename all of them."""
    if folder.is_file():
        raise TokenizerError(f"{folder} is a file; expected a directory")
    folder.mkdir(parents=True, exist_ok=True)
    temporary = {folder / name: folder / f".{name}.{os.getpid()}.part" for name in files}
    try:
        for path, part in temporary.items():
            with part.open("wb") as stream:
                stream.write(files[path.name])
                stream.flush()
                os.fsync(stream.fileno())
        for path, part in temporary.items():
            part.replace(path)
    finally:
        for part in temporary.values():
            part.unlink(missing_ok=True)
