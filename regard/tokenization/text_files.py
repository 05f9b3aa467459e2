"""Read text files line by line, compressed or not, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from regard.files import open_regular


class _ZstdReader(io.RawIOBase):
    """Decompressed content of a .zst file.

    It reads all frames (`zstd -T0` and `cat` write several), and raises an error if the last one is truncated. The
    library's own reader treats both as the end of the file.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self.file = file
        self.frame: Any = None
        self.buffer = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer and return the number of bytes; 0 at the end of the file."""
        view = memoryview(buffer)
        while not self.buffer:
            data = self.file.read(CHUNK_BYTES)
            if not data:
                if self.frame is not None:
                    raise EOFError("truncated zstd frame")
                return 0
            self.buffer = self._decompress(data)
        count = min(len(view), len(self.buffer))
        view[:count], self.buffer = self.buffer[:count], self.buffer[count:]
        return count

    def _decompress(self, data: bytes) -> bytes:
        parts = []
        while data:
            frame = self.frame or zstandard.ZstdDecompressor().decompressobj()
            parts.append(frame.decompress(data))
            self.frame, data = (None, frame.unused_data) if frame.eof else (frame, b"")
        return b"".join(parts)


def _open_zstd(file: io.BufferedReader, mode: str) -> io.BufferedReader:
    del mode
    return io.BufferedReader(_ZstdReader(file))


CHUNK_BYTES = 1 << 13
"""Compressed bytes per read: small, so that a decompression bomb (thirty thousand to one) cannot fill the memory."""
MAX_LINE_BYTES = 64 * 2**20
"""Size limit of a line: a file without line breaks, or a decompression bomb, must not fill the memory."""
DECOMPRESSION_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError)
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".zst": _open_zstd}


class DataError(ValueError):
    """A data file is invalid. The message names the file, the line, what was found and what to do."""

    def __init__(self, file: str | Path, line: int | None, message: str) -> None:
        super().__init__(f"{file}{'' if line is None else f', line {line}'}: {message}")
        self.file, self.line, self.message = Path(file), line, message


@contextmanager
def open_decompressed(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, and decompress it if its name ends in .gz, .xz or .zst."""
    path = Path(path)
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise DataError(path, None, "file not found") from None
    except OSError as error:
        raise DataError(path, None, str(error.strerror)) from None
    with file, OPENERS[path.suffix](file, "rb") if path.suffix in OPENERS else file as stream:
        try:
            yield stream
        except DECOMPRESSION_ERRORS as error:
            raise decompression_error(path, None, error) from None


def limited_lines(stream: Any, path: str | Path, first_line: int = 1) -> Iterator[bytes]:
    """Yield the lines of a stream with their line endings. A line of more than `MAX_LINE_BYTES` is a `DataError`."""
    for number, line in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES), b""), first_line):
        if len(line) >= MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise long_line_error(path, number)
        yield line


def long_line_error(path: str | Path, line: int) -> DataError:
    """Return the error for a line of more than `MAX_LINE_BYTES`."""
    message = f"the line has more than {MAX_LINE_BYTES:,} bytes: not a text file, or its line breaks are missing"
    return DataError(path, line, message)


def decompression_error(path: str | Path, line: int | None, error: Exception) -> DataError:
    """Return the error for an archive that cannot be decompressed."""
    return DataError(path, line, f"cannot decompress ({error}): the file is truncated or corrupt, compress it again")


def read_raw_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yield number (from 1) and bytes of each line, with its line ending (\\n or \\r\\n).

    Raises `DataError` on a truncated or corrupt archive.
    """
    line_number = 0
    with open_decompressed(path) as stream:
        try:
            for line_number, line in enumerate(limited_lines(stream, path), 1):
                yield line_number, line
        except DECOMPRESSION_ERRORS as error:
            raise decompression_error(path, line_number + 1, error) from None


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and text of each line, without its line ending. Raises `DataError` on invalid UTF-8."""
    for line_number, line in read_raw_lines(path):
        yield line_number, decode_line(line, path, line_number).removesuffix("\n").removesuffix("\r")


def decode_line(line: bytes, path: str | Path, line_number: int) -> str:
    """Decode a line of a file as UTF-8, without the byte order mark at the start of the file."""
    if line_number == 1 and line.startswith(b"\xef\xbb\xbf"):
        line = line[3:]
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = line[error.start : error.start + 1]
        raise DataError(
            path,
            line_number,
            f"byte {error.start + 1} of the line ({byte!r}) is not valid UTF-8. If the file is in another encoding, "
            f"convert it first: iconv -f latin1 -t utf-8 {Path(path).name}",
        ) from None


def format_suffix(path: str | Path) -> str:
    """Return the suffix of the file format, without that of the compression: ".tsv" for `a.tsv.gz`."""
    path = Path(path)
    return (Path(path.stem) if path.suffix in OPENERS else path).suffix.lower()
