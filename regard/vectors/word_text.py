"""The words of text files, in blocks of bounded size: files may exceed the memory, and lines may have any length."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from regard.vectors.vector_options import TextOptions, Tokens

BLOCK_BYTES = 1 << 20
WORD = re.compile(r"\w+(?:['’]\w+)*")
OPENERS: dict[str, Callable[[Path, str], IO[bytes]]] = {
    ".gz": gzip.open,  # type: ignore[dict-item]
    ".bz2": bz2.open,  # type: ignore[dict-item]
    ".xz": lzma.open,  # type: ignore[dict-item]
}
"""Compressed files, by suffix."""

Advance = Callable[[int], None]
"""Called with the number of bytes that were read."""


def read_words(
    files: Sequence[Path], options: TextOptions, advance: Advance = lambda _: None
) -> Iterator[list[list[str]]]:
    """Yield blocks of lines, each line as a list of its words.

    A line that spans several blocks is one list in each; so the first list of a block continues the last one of the
    block before. A list is never a part of a word.
    """
    split: Callable[[str], list[str]] = str.split if options.tokens is Tokens.WHITESPACE else WORD.findall
    for file in files:
        rest = ""
        for block in _read_text(file, advance):
            text = rest + block
            # Up to the last white space; the rest may be a part of a word.
            end = len(text) - len(text.rsplit(None, 1)[-1]) if text and not text[-1].isspace() else len(text)
            text, rest = text[:end], text[end:]
            if options.lowercase:
                text = text.lower()
            yield [split(line) for line in text.split("\n")]
        # The end of a file is the end of a line.
        yield [split(rest.lower() if options.lowercase else rest), []]


def total_bytes(files: Sequence[Path]) -> int | None:
    """Return the size of all files, or None if one is compressed."""
    if any(file.suffix in OPENERS for file in files):
        return None
    return sum(file.stat().st_size for file in files)


def _read_text(file: Path, advance: Advance) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = 0
    try:
        with OPENERS.get(file.suffix, open)(file, "rb") as stream:
            while block := stream.read(BLOCK_BYTES):
                pending = len(decoder.getstate()[0])
                try:
                    text = decoder.decode(block)
                except UnicodeDecodeError as error:
                    place = position - pending + error.start + 1
                    raise ValueError(f"{file}: byte {place} is not valid UTF-8: not a text file, or damaged") from None
                position += len(block)
                advance(len(block))
                yield text.removeprefix("\ufeff") if position == len(block) else text
        if decoder.getstate()[0]:
            raise ValueError(f"{file}: the last character is incomplete: the file is truncated")
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ValueError(f"{file}: damaged after {position} bytes of text ({error})") from None


def map_indices(path: Path) -> NDArray[np.int32]:
    """Map a file of word indices into memory."""
    if path.stat().st_size == 0:
        return np.empty(0, np.int32)
    return np.memmap(path, np.int32, "r")
