"""Text files, compressed or not, line by line; and what is said when one is wrong."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import zstandard


class _ZstdBytes(io.RawIOBase):
    """A .zst file's content. All its frames are read (`zstd -T0` and `cat` write several), and a file that ends in the
    middle of one is an error: the library's own reader takes both for the end of the text.
    """

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.frame: Any = None
        self.left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer with what comes next; 0 at the end."""
        view = memoryview(buffer)
        while not self.left:
            given = self.file.read(CHUNK)
            if not given:
                if self.frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            self.left = self._decompress(given)
        count = min(len(view), len(self.left))
        view[:count], self.left = self.left[:count], self.left[count:]
        return count

    def _decompress(self, given: bytes) -> bytes:
        parts = []
        while given:
            frame = self.frame or zstandard.ZstdDecompressor().decompressobj()
            parts.append(frame.decompress(given))
            self.frame, given = (None, frame.unused_data) if frame.eof else (frame, b"")
        return b"".join(parts)

    def close(self) -> None:
        self.file.close()
        super().close()


def _open_zstd(path: Path, mode: str) -> io.BufferedReader:
    del mode
    return io.BufferedReader(_ZstdBytes(path))


CHUNK = 1 << 13
"""Compressed bytes at a time: a file that swells thirty thousand times must not fill the memory."""
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError)
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".zst": _open_zstd}


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
        try:
            yield stream
        except BROKEN as error:
            raise DataError(path, None, f"the archive is broken ({error}): make it again") from None


def raw_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and bytes of each line, its end (\\n or \\r\\n) included. A broken archive is a `DataError`."""
    number = 0
    with open_bytes(path) as stream:
        try:
            for number, line in enumerate(stream, 1):
                yield number, line
        except BROKEN as error:
            raise DataError(path, number + 1, f"the archive is broken ({error}): make it again") from None


def lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, without its end. What is no UTF-8 is a `DataError` that says where."""
    for number, line in raw_lines(path):
        yield number, decode(line, path, number).removesuffix("\n").removesuffix("\r")


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
