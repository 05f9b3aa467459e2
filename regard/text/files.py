"""Text files, compressed or not, line by line; and what is said when one is wrong."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".zst": zstandard.open}


class DataError(ValueError):
    """Something is wrong with a file of data: which file, which line, what was found, what to do."""

    def __init__(self, file: str | Path, line: int | None, said: str) -> None:
        super().__init__(f"{file}{'' if line is None else f', line {line}'}: {said}")
        self.file, self.line, self.said = Path(file), line, said


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """A file's bytes, decompressed on the way where its name ends in .gz, .xz or .zst."""
    path = Path(path)
    if path.is_dir():
        raise DataError(path, None, "this is a folder; expected a file")
    if not path.exists():
        raise DataError(path, None, "there is no such file")
    with OPENERS.get(path.suffix, open)(path, "rb") as stream:
        yield stream


def raw_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and bytes of each line, its end (\\n or \\r\\n) included. A broken archive is a `DataError`."""
    number = 0
    with open_bytes(path) as stream:
        try:
            for number, line in enumerate(stream, 1):
                yield number, line
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError) as error:
            raise DataError(path, number + 1, f"the archive is broken ({error}): make it again") from None


def lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, without its end. What is no UTF-8 is a `DataError` that says where."""
    for number, line in raw_lines(path):
        yield number, decode(line, path, number).rstrip("\r\n")


def decode(line: bytes, path: str | Path, number: int) -> str:
    """A line's text. A byte order mark at the start of the file is no text."""
    if number == 1 and line.startswith(b"\xef\xbb\xbf"):
        line = line[3:]
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = line[error.start : error.start + 1]
        raise DataError(
            path,
            number,
            f"byte {error.start + 1} of the line ({found!r}) is no UTF-8. If the file is in another encoding, convert "
            f"it first: iconv -f latin1 -t utf-8 {Path(path).name}",
        ) from None


def kind_of(path: str | Path) -> str:
    """The ending that tells the format, without the one that tells the compression: `a.tsv.gz` is ".tsv"."""
    path = Path(path)
    return (Path(path.stem) if path.suffix in OPENERS else path).suffix.lower()
