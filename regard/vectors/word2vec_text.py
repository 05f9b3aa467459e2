"""Vectors in text: the layouts of word2vec (with a first line) and GloVe (without)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from regard.progress import Progress
from regard.vectors.word_vectors import WordVectors

BLOCK_BYTES = 1 << 22
"""The file is read in blocks of this size, so the memory needed beside the vectors is bounded."""
LARGEST = float(np.finfo(np.float32).max)
HEADER = re.compile(rb"\s*(\d{1,12})\s+(\d{1,7})\s*")


def parse_header(line: bytes) -> tuple[int, int] | None:
    """Return the numbers of words and dimensions of a first line; None if it is something else."""
    match = HEADER.fullmatch(line)
    return (int(match[1]), int(match[2])) if match and int(match[2]) > 0 else None


def read_text_rows(path: Path, progress: Progress) -> WordVectors:
    """Read word2vec's text layout."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        count, dim = parse_header(stream.readline()) or (0, 0)
        if count * (1 + 2 * dim) > size:  # checked before memory is allocated
            raise ValueError(
                f"line 1 announces {count:,} words of {dim} numbers, at least {count * (1 + 2 * dim):,} bytes; "
                f"the file has {size:,}: it is truncated, or the line is wrong"
            )
        return _read_rows(stream, count, dim, 2, path, progress)


def read_glove(path: Path, progress: Progress) -> WordVectors:
    """Read GloVe's text layout: one pass counts the lines, the second reads them."""
    with path.open("rb") as stream:
        dim = _count_numbers(stream.readline())
        if dim == 0:
            raise ValueError(
                "line 1 is neither `words dim` nor a word with numbers; expected word2vec, GloVe or fastText"
            )
        stream.seek(0)
        count = sum(1 for line in stream if not line.isspace())
        stream.seek(0)
        return _read_rows(stream, count, dim, 1, path, progress)


def _count_numbers(line: bytes) -> int:
    count = 0
    for text in reversed(line.split()[1:]):
        try:
            float(text)
        except ValueError:
            break
        count += 1
    return count


def _read_rows(stream: IO[bytes], count: int, dim: int, first_line: int, path: Path, progress: Progress) -> WordVectors:
    words: list[str] = []
    matrix = np.empty((count, dim), np.float32)
    for line_number, lines in _blocks(stream, first_line):
        progress.advance(sum(map(len, lines)))
        block_words, numbers = _parse_block(lines, dim, line_number)
        if len(words) + len(block_words) > count:
            raise ValueError(
                f"line {line_number + count - len(words)}: more lines than the {count:,} words that line 1 announces"
            )
        matrix[len(words) : len(words) + len(block_words)] = numbers
        words += block_words
    if len(words) < count:
        raise ValueError(f"the file has {len(words):,} words, line 1 announces {count:,}: it is truncated")
    return without_duplicates(words, matrix, path)


def _blocks(stream: IO[bytes], line_number: int) -> Iterator[tuple[int, list[bytes]]]:
    while lines := stream.readlines(BLOCK_BYTES):
        yield line_number, lines
        line_number += len(lines)


def _parse_block(lines: Sequence[bytes], dim: int, first_line: int) -> tuple[list[str], NDArray[np.float32]]:
    words, texts = [], []
    for number, line in enumerate(lines, first_line):
        stripped = line.rstrip(b" \r\n")
        if not stripped:
            continue
        # A word may have spaces in it (GloVe's `. . .`), so the numbers are counted from the right.
        word, *numbers = stripped.split(b" ", 1) if stripped.count(b" ") == dim else _split_right(stripped, dim)
        if not numbers:
            raise ValueError(
                f"line {number}: expected a word and {dim} numbers, found {len(stripped.split()) - 1} after "
                f"{word[:40].decode(errors='replace')!r}"
            )
        try:
            words.append(word.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"line {number}, byte {error.start + 1}: the word is not valid UTF-8") from None
        texts.append(numbers[0])
    values = parse_numbers(b" ".join(texts), len(texts) * dim)
    if values is None or not np.isfinite(values).all():
        _raise_bad_number(texts, words, lines, dim, first_line)
    assert values is not None
    return words, values.reshape(-1, dim)


def _split_right(line: bytes, dim: int) -> list[bytes]:
    parts = line.rsplit(b" ", dim)
    return [parts[0], b" ".join(parts[1:])] if len(parts) == dim + 1 else [parts[0]]


def parse_numbers(text: bytes, count: int) -> NDArray[np.float32] | None:
    """Return numbers separated by spaces, None if they are not exactly so many."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy's way to report what is no number
        try:
            values = np.fromstring(text, np.float32, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    return values if len(values) == count else None


def _raise_bad_number(
    texts: Iterable[bytes], words: Sequence[str], lines: Sequence[bytes], dim: int, first_line: int
) -> None:
    numbers = [number for number, line in enumerate(lines, first_line) if line.rstrip(b" \r\n")]
    for number, word, text in zip(numbers, words, texts, strict=True):
        values = parse_numbers(text, dim)
        if values is None or not np.isfinite(values).all():
            bad = next((part for part in text.split(b" ") if not _is_finite(part)), text[:40])
            raise ValueError(
                f"line {number} ({word[:40]!r}): expected {dim} finite numbers, found {bad.decode(errors='replace')!r}"
            )
    raise ValueError(f"lines {first_line} to {first_line + len(lines) - 1}: expected {dim} numbers on each")


def _is_finite(text: bytes) -> bool:
    try:
        return abs(float(text)) <= LARGEST  # false for NaN
    except ValueError:
        return False


def without_duplicates(words: list[str], matrix: NDArray[np.float32], path: Path) -> WordVectors:
    """Return the vectors; if a word occurs twice, its first vector counts, and a warning names it."""
    if len(set(words)) < len(words):
        rows = {word: row for row, word in reversed(list(enumerate(words)))}
        again = next(row for row, word in enumerate(words) if rows[word] != row)
        warnings.warn(
            f"{path}: {len(words) - len(rows)} words occur twice, the first of them {words[again]!r} "
            f"(word {again + 1}): the first vector of each is used",
            stacklevel=2,
        )
        kept = sorted(rows.values())
        words, matrix = [words[row] for row in kept], matrix[kept]
    return WordVectors(words, matrix, source=str(path))


def format_row(word: str, row: NDArray[np.float32]) -> str:
    """Return a line of text. Each number has the shortest decimals that give the same float32 again."""
    return f"{word} {' '.join(map(str, row.astype(np.float32, copy=False)))}\n"
