"""Parallel text: two files, the second with the translations of the first, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from regard.data.example import Pair
from regard.tokenization.text_files import DataError, lines


def read_parallel(files: Sequence[Path]) -> Iterator[Pair]:
    """Pairs from a source and a target file, or from several such pairs of files, one after the other."""
    if not files or len(files) % 2:
        raise DataError(
            files[0] if files else "",
            None,
            f"parallel text is two files, source and target (or several times two); found {len(files)}. "
            f"For a table with both in one file, name it .tsv or .csv, or give Table(...)",
        )
    for source, target in zip(files[::2], files[1::2], strict=True):
        yield from _two(source, target)


def _two(source: Path, target: Path) -> Iterator[Pair]:
    ours, theirs = lines(source), lines(target)
    for one, other in zip_longest(ours, theirs):
        if one is None or other is None:
            count = other[0] if one is None else one[0]
            counts = (count - 1, _last(theirs, count)) if one is None else (_last(ours, count), count - 1)
            raise DataError(
                source if one is None else target,
                count,
                f"the line is missing: {source} has {counts[0]:,} lines and {target} has {counts[1]:,}, and each line "
                f"must be the translation of the same line in the other. `regard doctor` finds where they part",
            )
        yield Pair(source=one[1], target=other[1], file=source, line=one[0])


def _last(rest: Iterator[tuple[int, str]], number: int) -> int:
    for number, _ in rest:  # noqa: B007, PLR1704 - the last number is what is asked for
        pass
    return number
