"""Files and folders that are written atomically, flushing to disk, and JSON files.

A file or folder is written under a temporary name in the same place, flushed to disk and renamed: a reader never sees
half of it, whenever the writer stops.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file to; on success, flush the file and rename it to `path`."""
    with atomic_write_all([path]) as (temporary,):
        yield temporary


@contextmanager
def atomic_write_all(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each of several files; the first is renamed when the last is flushed."""
    temporary = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in paths}
    try:
        yield [*temporary.values()]
        for part in temporary.values():
            sync(part)
        for path, part in temporary.items():
            part.replace(path)
    finally:
        for part in temporary.values():
            part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder to fill; on success, flush its files and rename it to `path`.

    A folder that has this name is replaced. If the process is killed between the two renames, `repair_folder` puts the
    old one back.
    """
    repair_folder(path)
    temporary = _temporary_folder(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for part in [*temporary.rglob("*"), temporary]:
            sync(part)
        if path.exists():
            path.rename(_old_folder(path))
        temporary.rename(path)
        sync(path.parent)
    finally:
        repair_folder(path)


def repair_folder(path: Path) -> None:
    """Put back the old folder if a killed process left none, and remove its temporary folders."""
    if not path.exists() and _old_folder(path).exists():
        _old_folder(path).rename(path)
    for leftover in (_old_folder(path), _temporary_folder(path)):
        shutil.rmtree(leftover, ignore_errors=True)


def _temporary_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _old_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    is_folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows flushes only files open for writing
    except PermissionError:
        if is_folder:  # Windows cannot open folders
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, all of them or none. Names may have a subfolder: `target/tokenizer.json`."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; expected a directory")
    paths = [folder / name for name in files]
    for parent in {folder, *(path.parent for path in paths)}:
        parent.mkdir(parents=True, exist_ok=True)
    with atomic_write_all(paths) as temporary:
        for part, content in zip(temporary, files.values(), strict=True):
            part.write_bytes(content)


def read_text(path: Path, error: type[ValueError] = ValueError) -> str:
    """Read a UTF-8 file; `error` is the class of the error that is raised if this fails."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise error(f"{path} does not exist") from None
    except UnicodeDecodeError as problem:
        raise error(f"{path}: byte {problem.start + 1} is not valid UTF-8: not a text file, or damaged") from None
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}") from None


def read_json(path: Path, error: type[ValueError] = ValueError) -> dict[str, Any]:
    """Read a JSON object from a file; `error` is the class of the error that is raised if this fails."""
    text = read_text(path, error)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        raise error(f"{path}, line {problem.lineno}: invalid JSON ({problem.msg})") from None
    except RecursionError:
        raise error(f"{path}: JSON nested too deeply") from None
    except ValueError as problem:  # an integer of too many digits
        raise error(f"{path}: invalid JSON ({problem})") from None
    if not isinstance(value, dict):
        raise error(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object to a file."""
    with atomic_write(path) as temporary:
        temporary.write_text(format_json(value), encoding="utf-8")


def format_json(value: Mapping[str, Any]) -> str:
    """Return a JSON object as the text of a file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
