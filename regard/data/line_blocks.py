"""Read files in blocks of lines: a block is decoded and split by one call each, which is faster than line by line."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.tokenization.text_files import (
    DECOMPRESSION_ERRORS,
    MAX_LINE_BYTES,
    OPENERS,
    DataError,
    decode_line,
    decompression_error,
    limited_lines,
    long_line_error,
    open_decompressed,
)

BLOCK_BYTES, BLOCK_LINES = 1 << 20, 1 << 14
"""A block is complete when either is reached."""
LINES_PER_STEP = 256
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LineBlock:
    """A block of lines of a file, without line endings, and the number of the first line."""

    first_line: int
    texts: list[str]


def read_line_blocks(path: Path) -> Iterator[LineBlock]:
    """Yield the lines of a UTF-8 file in blocks. Another encoding raises a `DataError`, after the lines before it."""
    first_line = 1
    for raw_lines in read_raw_blocks(path):
        if first_line == 1:
            raw_lines[0] = raw_lines[0].removeprefix(BYTE_ORDER_MARK)
        try:
            texts = decode_lines(raw_lines)
        except UnicodeDecodeError:
            yield from _lines_before_error(path, first_line, raw_lines)
        else:
            yield LineBlock(first_line, texts)
        first_line += len(raw_lines)


def _lines_before_error(path: Path, first_line: int, raw_lines: Sequence[bytes]) -> Iterator[LineBlock]:
    texts: list[str] = []
    for number, raw_line in enumerate(raw_lines, first_line):
        try:
            texts.append(decode_line(raw_line, path, number).removesuffix("\n").removesuffix("\r"))
        except DataError:
            if texts:
                yield LineBlock(first_line, texts)
            raise


def decode_lines(raw_lines: Sequence[bytes]) -> list[str]:
    """Decode lines and remove their line endings, \\n or \\r\\n. Raises `UnicodeDecodeError`."""
    block = b"".join(raw_lines).decode()
    texts = block.split("\n")
    if len(texts) > len(raw_lines):
        texts.pop()  # the empty string after the last line ending
    return [text.removesuffix("\r") for text in texts] if "\r" in block else texts


def read_raw_blocks(path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file in blocks, with their line endings. An error is raised after the lines before it."""
    with open_decompressed(path) as stream:
        yield from _compressed_blocks(stream, path) if path.suffix in OPENERS else _plain_blocks(stream, path)


def _plain_blocks(stream: Any, path: Path) -> Iterator[list[bytes]]:
    """Split the bytes of a file into lines, a block at a time."""
    rest, num_lines = b"", 0
    while data := stream.read(BLOCK_BYTES):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if len(data) - end >= MAX_LINE_BYTES:
            raise long_line_error(path, num_lines + data.count(b"\n") + 1)
        rest = data[end:]
        lines = io.BytesIO(data[:end]).readlines()
        for start in range(0, len(lines), BLOCK_LINES):
            yield lines[start : start + BLOCK_LINES]
        num_lines += len(lines)
    if rest:
        yield [rest]


def _compressed_blocks(stream: Any, path: Path) -> Iterator[list[bytes]]:
    """Read line by line, so that an error in the archive has its line."""
    lines, num_lines = limited_lines(stream, path), 0
    while True:
        block, error = _next_block(lines)
        num_lines += len(block)
        if block:
            yield block
        if isinstance(error, DataError):
            raise error
        if error is not None:
            raise decompression_error(path, num_lines + 1, error)
        if not block:
            return


def _next_block(stream: Iterable[bytes]) -> tuple[list[bytes], Exception | None]:
    """Return the next lines of a file, and the error at which reading ended."""
    block: list[bytes] = []
    size = 0
    try:
        while size < BLOCK_BYTES and len(block) < BLOCK_LINES:
            start = len(block)
            block.extend(islice(stream, LINES_PER_STEP))  # in an error, it has the lines before it
            if len(block) == start:
                break
            size += sum(map(len, islice(block, start, None)))
    except (*DECOMPRESSION_ERRORS, DataError) as error:
        return block, error
    return block, None
