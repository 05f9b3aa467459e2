"""Parallel text: two files, where line i of the second is the translation of line i of the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from regard.data.example import Pair
from regard.tokenization.text_files import DataError, read_lines


def read_parallel(files: Sequence[Path]) -> Iterator[Pair]:
    """Read pairs from a source and a target file, or from several such pairs of files, one after the other."""
    if not files or len(files) % 2:
        raise DataError(
            files[0] if files else "",
            None,
            f"parallel text needs pairs of files (source, target); found {len(files)}. "
            f"For one file with both columns, use the extension .tsv or .csv, or pass Table(...)",
        )
    for source, target in zip(files[::2], files[1::2], strict=True):
        yield from _read_pair(source, target)


def _read_pair(source: Path, target: Path) -> Iterator[Pair]:
    source_lines, target_lines = read_lines(source), read_lines(target)
    for source_line, target_line in zip_longest(source_lines, target_lines):
        if source_line is None or target_line is None:
            if source_line is None:
                line = target_line[0]
                counts = line - 1, _last_line_number(target_lines, line)
            else:
                line = source_line[0]
                counts = _last_line_number(source_lines, line), line - 1
            raise DataError(
                source if source_line is None else target,
                line,
                f"line count mismatch: {source} has {counts[0]:,} lines and {target} has {counts[1]:,}; line i of one "
                f"must be the translation of line i of the other. `regard doctor` locates the divergence",
            )
        yield Pair(source=source_line[1], target=target_line[1], file=source, line=source_line[0])


def _last_line_number(lines: Iterator[tuple[int, str]], number: int) -> int:
    for number, _ in lines:  # noqa: B007, PLR1704 - only the last number is needed
        pass
    return number
