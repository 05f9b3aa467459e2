"""Parallel text: two files, where line i of the second is the translation of line i of the first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from regard.data.line_blocks import LineBlock
from regard.data.problem import DataProblem, ProblemKind
from regard.data.record_batch import RecordBatch


def parse_parallel(
    source: Path, target: Path, source_blocks: Iterable[LineBlock], target_blocks: Iterable[LineBlock]
) -> Iterator[RecordBatch]:
    """Yield the pairs of two files. The rest of the longer one is read too, to count its lines."""
    streams = [iter(source_blocks), iter(target_blocks)]
    pending: list[list[str]] = [[], []]
    files, first = {"source": source, "target": target}, 1
    while True:
        for side, stream in enumerate(streams):
            if not pending[side] and (block := next(stream, None)):
                pending[side] = block.texts
        count = min(map(len, pending))
        if not count:
            break
        fields = dict(zip(files, (side if len(side) == count else side[:count] for side in pending), strict=True))
        yield RecordBatch(range(first, first + count), fields, files)
        pending, first = [side[count:] for side in pending], first + count
    counts = [
        first - 1 + len(rest) + sum(len(block.texts) for block in stream)
        for rest, stream in zip(pending, streams, strict=True)
    ]
    if counts[0] != counts[1]:
        message = (
            f"line count mismatch: {source} has {counts[0]:,} lines and {target} has {counts[1]:,}; line i of one "
            "must be the translation of line i of the other. `regard doctor` locates the divergence"
        )
        shorter = source if counts[0] < counts[1] else target
        problem = DataProblem(ProblemKind.LINE_COUNTS, shorter, min(counts) + 1, message)
        yield RecordBatch((), {}, files, [problem])
