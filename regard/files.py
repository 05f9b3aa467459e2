"""Files and folders that are written atomically, flushing to disk, and JSON files.

A file or folder is written under a temporary name in the same place, flushed to disk and renamed: a reader never sees
half of it, whenever the writer stops. Temporary names are random and created exclusively: a link that was placed there
before is not followed. They are also recognizable (`TEMPORARY_NAME`): only such leftovers of a killed process are
removed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

MAX_TEXT_BYTES = 256 * 2**20
"""Size limit of a file that is read as a whole: the largest published tokenizer.json files have 35 MB."""
TEMPORARY_NAME = r"\.{name}(\.[0-9a-f]{{16}}|\.\d+)?\.(part|old|gone)"
"""The temporary names of a file or folder. (Version 0.1 had a process id, or nothing, instead of random digits.)"""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file to; on success, flush the file and rename it to `path`."""
    with atomic_write_all([path]) as (temporary,):
        yield temporary


@contextmanager
def atomic_write_all(paths: Iterable[Path], *, remove: Iterable[Path] = ()) -> Iterator[list[Path]]:
    """Yield a temporary path for each of several files: all of them are written or none.

    When all are flushed, they are renamed, and then the files in `remove` are removed. If that fails, everything is put
    back. If the process is killed meanwhile, `find_leftovers` finds the old files: `.NAME.*.old` and, for a file that
    did not exist, `.NAME.*.gone`; the next writer puts them back with `repair_files`.
    """
    temporary = {path: temporary_path(path, "part") for path in paths}
    try:
        for part in temporary.values():
            _create_exclusively(part)
        yield [*temporary.values()]
        for part in temporary.values():
            sync(part)
        _replace_all(temporary, [path for path in remove if os.path.lexists(path)])
    finally:
        for part in temporary.values():
            part.unlink(missing_ok=True)


def _replace_all(parts: Mapping[Path, Path], remove: Iterable[Path]) -> None:
    """Rename each part to its path, and remove other files; put everything back if that fails."""
    changed = [*parts, *remove]
    for path in changed:
        if path.is_dir() and not path.is_symlink():
            raise IsADirectoryError(errno.EISDIR, "is a directory; expected a file", str(path))
    is_new = len(changed) == 1 or not any(map(os.path.lexists, changed))  # then one rename completes it
    backups = [] if is_new else [_back_up(path) for path in changed]
    try:
        for path, part in parts.items():
            part.replace(path)
        for path in remove:
            path.unlink()
    except BaseException:
        for path, backup in zip(changed, backups, strict=False):
            _put_back(path, backup)
        raise
    finally:
        for backup in reversed(backups):
            with suppress(OSError):  # all files are in place
                backup.unlink(missing_ok=True)


def _back_up(path: Path) -> Path:
    """Give the file a second name; an empty file marks one that does not exist."""
    if not os.path.lexists(path):
        backup = temporary_path(path, "gone")
        _create_exclusively(backup)
        return backup
    backup = temporary_path(path, "old")
    try:
        os.link(path, backup, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(path, backup, follow_symlinks=False)
    return backup


def _put_back(path: Path, backup: Path) -> None:
    if backup.suffix == ".gone":
        path.unlink(missing_ok=True)
    elif not (os.path.lexists(path) and os.path.samestat(path.lstat(), backup.lstat())):
        backup.replace(path)
    backup.unlink(missing_ok=True)


def repair_files(paths: Iterable[Path]) -> None:
    """Put back the old files if a process was killed while it renamed them, and remove its temporary files."""
    for path in paths:
        for leftover in find_leftovers(path):
            if leftover.suffix == ".part":
                leftover.unlink(missing_ok=True)
            else:
                _put_back(path, leftover)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder to fill; on success, flush its files and rename it to `path`.

    A folder that has this name is replaced. If the process is killed between the two renames, `repair_folder` puts the
    old one back.
    """
    repair_folder(path)
    temporary = temporary_path(path, "part")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for part in [*temporary.rglob("*"), temporary]:
            sync(part)
        if path.exists():
            path.rename(temporary_path(path, "old"))
        temporary.rename(path)
        sync(path.parent)
    finally:
        repair_folder(path)


def repair_folder(path: Path) -> None:
    """Put back the old folder if a killed process left none, and remove its temporary folders."""
    leftovers = find_leftovers(path)
    for leftover in leftovers:
        if leftover.suffix == ".old" and not path.exists():
            leftover.rename(path)
    for leftover in leftovers:
        shutil.rmtree(leftover, ignore_errors=True)


def find_leftovers(path: Path) -> list[Path]:
    """Return the temporary files and folders that a killed writer of `path` left beside it."""
    pattern = re.compile(TEMPORARY_NAME.format(name=re.escape(path.name)))
    return sorted(other for other in path.parent.glob(".*") if pattern.fullmatch(other.name))


def temporary_path(path: Path, suffix: str) -> Path:
    """Return a temporary name beside `path` that cannot be guessed; `suffix` is part, old or gone."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.{suffix}")


def _create_exclusively(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


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
    repair_files(paths)
    with atomic_write_all(paths) as temporary:
        for part, content in zip(temporary, files.values(), strict=True):
            part.write_bytes(content)


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file for reading bytes. A pipe, socket or device raises an OSError: it may have no end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory; expected a file", str(path))
        raise OSError(errno.EINVAL, "is a pipe, socket or device; expected a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_bytes(path: Path) -> bytes:
    """Read a regular file. A file of more than `MAX_TEXT_BYTES` raises an OSError before it is read."""
    limit = MAX_TEXT_BYTES
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"has {size:,} bytes; expected at most {limit:,}", str(path))
        return file.read(limit)


def read_text(path: Path, error: type[ValueError] = ValueError) -> str:
    """Read a UTF-8 file; `error` is the class of the error that is raised if this fails."""
    try:
        return read_bytes(path).decode("utf-8").replace("\r\n", "\n")
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
