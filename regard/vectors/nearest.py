"""Exact nearest neighbours in a matrix of vectors, by blocks.

    index = NearestNeighbours(np.load("vectors.npy", mmap_mode="r"))
    result = index.search(query, count=10)      # result.indices, result.scores

The matrix is never copied: it may be float32, float16, float64 or int8 with a scale, in memory or mapped from a file.

The scores are defined by `exact_scores`: products and sums in float64, rounded to float32; equal scores are ordered by
index. Computing this for every row would be slow, so a first pass in float32 (one matrix product per block) finds the
candidates: the rows whose score, given the largest possible rounding error of float32, could be among the best. Only
candidates are scored by the definition. The result therefore does not depend on the block size, the number of threads,
or the other queries of a call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK_ROWS = 16384
"""Rows of one matrix product with `QUERIES` queries, whose scores take 4 MB; fewer queries have larger blocks."""
CONVERTED_BYTES = 1 << 20
"""Rows of another type are converted to float32 in parts of this size, which stay in the CPU's cache."""
QUERIES = 64
"""Queries of one pass over the matrix."""
SMALLEST_LENGTH = 1e-30
"""A shorter vector counts as zero: its score is zero with every query."""
LARGEST_LENGTH = 1e15
"""Longer vectors could overflow float32 in a product."""
ROUNDING = 2.0**-24
"""The largest relative error of one operation in float32."""


class Similarity(Enum):
    """What a score is."""

    COSINE = "cosine"
    """The dot product of query and row, divided by both lengths."""
    DOT = "dot"
    """The dot product."""


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The nearest rows of each query, best first; of equal scores, the lower index first."""

    indices: Indices
    """Rows of the matrix (queries × count)."""
    scores: Floats
    """Their similarities (queries × count)."""


class NearestNeighbours:
    """A matrix of vectors in which to search.

    Args:
        vectors: one vector per row, rows contiguous in memory.
        scales: what integers are multiplied with: one number, or one for each row.
        lengths: the length of each row, if it is stored somewhere; 1.0 if the rows have length one. By default they
            are computed, in one pass over the matrix, which also checks that all numbers are finite.
        similarity: what to compare by.
        threads: how many blocks are searched at the same time. By default as many as there are CPUs.
    """

    def __init__(
        self,
        vectors: NDArray[np.generic],
        *,
        scales: Floats | float | None = None,
        lengths: Floats | float | None = None,
        similarity: Similarity = Similarity.COSINE,
        threads: int | None = None,
    ) -> None:
        if vectors.ndim != 2 or vectors.dtype not in (np.float32, np.float16, np.float64, np.int8):
            raise ValueError(
                f"expected a matrix of float32, float16, float64 or int8, found {vectors.dtype} {vectors.shape}"
            )
        self.vectors, self.similarity = vectors, similarity
        self.scales = None if scales is None else _per_row("scales", scales, len(vectors))
        self.threads = threads or _cpu_count()
        self.lengths = self._measure_lengths() if lengths is None else _per_row("lengths", lengths, len(vectors))
        self._longest = float(self.lengths.max(initial=0.0))
        self._divisors = np.where(self.lengths < SMALLEST_LENGTH, np.float32(np.inf), self.lengths).astype(np.float32)

    def search(self, queries: NDArray[np.generic], count: int = 10) -> Neighbours:
        """Return the `count` nearest rows of each query (all rows, if there are fewer).

        `queries` is one vector or a matrix of them; the result has one row for each.
        """
        wide: Doubles = np.atleast_2d(np.asarray(queries, np.float64))
        if wide.ndim != 2 or wide.shape[1] != self.vectors.shape[1]:
            raise ValueError(
                f"the queries have shape {wide.shape}; expected vectors of {self.vectors.shape[1]} numbers"
            )
        if not np.isfinite(wide).all():
            raise ValueError(f"query {int(np.flatnonzero(~np.isfinite(wide).all(axis=1))[0])} contains NaN or infinity")
        if count < 1:
            raise ValueError(f"count is {count}; expected at least 1")
        count = min(count, len(self.vectors))
        parts = [self._search(wide[i : i + QUERIES], count) for i in range(0, len(wide), QUERIES)]
        return Neighbours(
            indices=np.concatenate([part.indices for part in parts] or [np.empty((0, count), np.int64)]),
            scores=np.concatenate([part.scores for part in parts] or [np.empty((0, count), np.float32)]),
        )

    def exact_scores(self, query: Doubles, rows: Indices) -> Floats:
        """Return the scores of some rows: the definition. `query` is one vector, or one for each row.

        Each row is summed by itself, so equal rows have equal scores wherever they are.
        """
        vectors = self.vectors[rows].astype(np.float64)
        if self.scales is not None:
            vectors *= self.scales[rows, None]
        scores: Doubles = (vectors * query).sum(axis=-1)
        if self.similarity is Similarity.COSINE:
            lengths = np.sqrt((vectors * vectors).sum(axis=-1)) * np.sqrt((query * query).sum(axis=-1))
            short = (self.lengths[rows] < SMALLEST_LENGTH) | (lengths == 0)
            scores = np.where(short, 0.0, scores / np.where(short, 1.0, lengths))
        return scores.astype(np.float32)

    def _search(self, queries: Doubles, count: int) -> Neighbours:
        """Search for a few queries: each thread has a part of the rows, and the best of all parts are merged."""
        tasks = max(1, min(self.threads, -(-len(self.vectors) // BLOCK_ROWS)))
        bounds = [len(self.vectors) * i // tasks for i in range(tasks + 1)]
        if tasks == 1:
            return self._search_rows(queries, count, 0, len(self.vectors)).take(count)
        with ThreadPoolExecutor(tasks) as pool:
            futures = [pool.submit(self._search_rows, queries, count, start, end) for start, end in pairwise(bounds)]
            best = _Best(len(queries))
            for future in futures:
                best.merge(future.result(), count)
        return best.take(count)

    def _search_rows(self, queries: Doubles, count: int, start: int, end: int) -> _Best:
        """Return the best rows from `start` to `end`."""
        narrow, tolerance = self._prepare(queries)
        best = _Best(len(queries))
        for first, last in _blocks(start, end, BLOCK_ROWS * max(1, QUERIES // len(queries))):
            scores = self._fast_scores(narrow, first, last)
            block_count = min(count, last - first)
            # A row is a candidate if it could be among the best of the block, and of all rows so far.
            block_threshold = np.partition(scores, last - first - block_count, axis=1)[:, last - first - block_count]
            threshold = np.maximum(block_threshold - 2 * tolerance, best.threshold(count) - tolerance)
            # One step down: the subtraction itself is rounded.
            lines, rows = np.nonzero(scores >= np.nextafter(threshold, np.float32(-np.inf))[:, None])
            for part, part_end in _blocks(0, len(rows), BLOCK_ROWS):  # many, if many rows are equal
                chosen = slice(part, part_end)
                exact = self.exact_scores(queries[lines[chosen]], rows[chosen] + first)
                best.merge(_Best(len(queries), lines[chosen], rows[chosen] + first, exact), count)
        return best

    def _prepare(self, queries: Doubles) -> tuple[Floats, Floats]:
        """Return the queries in float32, and for each the largest possible error of its scores in the first pass.

        A sum of n products has a relative error of at most n roundings, with respect to the product of the lengths;
        so has each computed length. A few more roundings are those of the query, the scale and the division.
        """
        lengths = np.sqrt((queries * queries).sum(axis=1))
        relative = (2 * queries.shape[1] + 16) * ROUNDING
        if self.similarity is Similarity.COSINE:
            queries = queries / np.where(lengths == 0, 1.0, lengths)[:, None]
            return queries.astype(np.float32), np.full(len(queries), relative, np.float32)
        return queries.astype(np.float32), (relative * lengths * self._longest).astype(np.float32)

    def _fast_scores(self, queries: Floats, first: int, last: int) -> Floats:
        """Return the scores of a block in float32 (queries × rows)."""
        scores = np.empty((len(queries), last - first), np.float32)
        for start, end, rows in self._converted(first, last):
            if len(queries) == 1:
                # A loop without BLAS's own threads, which would wait for each other after every block.
                _dot_products(rows, queries[0], out=scores[0, start - first : end - first])
            else:
                np.matmul(queries, rows.T, out=scores[:, start - first : end - first])
        if self.scales is not None:
            scores *= self.scales[first:last]
        if self.similarity is Similarity.COSINE:
            scores /= self._divisors[first:last]
        return scores

    def _converted(self, first: int, last: int) -> Iterator[tuple[int, int, Floats]]:
        """Yield the rows of a block as float32; the memory is used again for the next ones."""
        if self.vectors.dtype == np.float32:
            yield first, last, self.vectors[first:last]  # type: ignore[misc]
            return
        step = max(64, CONVERTED_BYTES // (4 * max(1, self.vectors.shape[1])))
        memory = np.empty((min(step, last - first), self.vectors.shape[1]), np.float32)
        for start, end in _blocks(first, last, step):
            rows = memory[: end - start]
            np.copyto(rows, self.vectors[start:end], casting="unsafe")
            yield start, end, rows

    def _measure_lengths(self) -> Floats:
        lengths = np.empty(len(self.vectors), np.float32)

        def measure(bounds: tuple[int, int]) -> None:
            for start, end, rows in self._converted(*bounds):
                lengths[start:end] = self._row_lengths(rows, start, end)

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(measure, _blocks(0, len(self.vectors), BLOCK_ROWS)))
        if self.scales is not None:
            lengths *= np.abs(self.scales)
        return lengths

    def _row_lengths(self, rows: Floats, start: int, end: int) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", rows, rows)
            extreme = np.flatnonzero(~((squares > 1e-30) & (squares < LARGEST_LENGTH**2)))  # NaN too
        lengths = np.sqrt(squares, where=squares >= 0, out=np.zeros_like(squares))
        if extreme.size:
            wide = self.vectors[start:end][extreme].astype(np.float64)
            finite = np.isfinite(wide).all(axis=1)
            if not finite.all():
                raise ValueError(f"vector {start + int(extreme[~finite][0])} contains NaN or infinity")
            lengths[extreme] = exact = np.sqrt((wide * wide).sum(axis=1))
            if exact.max() > LARGEST_LENGTH:
                row = start + int(extreme[exact.argmax()])
                raise ValueError(f"vector {row} has length {exact.max():.3g}; expected at most {LARGEST_LENGTH:.0e}")
        return lengths


class _Best:
    """The best rows of several queries, as three columns: query, row and score, best first within a query."""

    def __init__(
        self, queries: int, lines: Indices | None = None, rows: Indices | None = None, scores: Floats | None = None
    ) -> None:
        self.queries = queries
        self.lines = np.empty(0, np.int64) if lines is None else lines
        self.rows = np.empty(0, np.int64) if rows is None else rows
        self.scores = np.empty(0, np.float32) if scores is None else scores

    def merge(self, other: _Best, count: int) -> None:
        """Add rows, and keep the best `count` of each query."""
        lines = np.concatenate([self.lines, other.lines])
        rows = np.concatenate([self.rows, other.rows])
        scores = np.concatenate([self.scores, other.scores])
        order = np.lexsort((rows, -scores, lines))
        lines = lines[order]
        rank = np.arange(len(lines)) - np.searchsorted(lines, lines)
        order = order[rank < count]
        self.lines, self.rows, self.scores = lines[rank < count], rows[order], scores[order]

    def threshold(self, count: int) -> Floats:
        """Return the score that a row needs to be among the best, for each query."""
        threshold = np.full(self.queries, -np.inf, np.float32)
        ends = np.searchsorted(self.lines, np.arange(self.queries), side="right")
        full = np.bincount(self.lines, minlength=self.queries) == count
        threshold[full] = self.scores[ends[full] - 1]
        return threshold

    def take(self, count: int) -> Neighbours:
        """Return the rows as one matrix."""
        shape = (self.queries, count)
        return Neighbours(indices=self.rows.reshape(shape), scores=self.scores.reshape(shape))


def _dot_products(rows: Floats, query: Floats, out: Floats) -> None:
    if hasattr(np, "vecdot"):  # since numpy 2.0
        np.vecdot(rows, query, out=out)
    else:
        np.matmul(rows, query, out=out)


def _per_row(name: str, values: Floats | float, rows: int) -> Floats:
    array = np.asarray(values, np.float32)
    if array.shape not in ((), (rows,)):
        raise ValueError(f"{name} has shape {array.shape}; expected one number, or one for each of the {rows} vectors")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(f"{name} contains a number that is negative or not finite")
    return np.broadcast_to(array, (rows,))


def _blocks(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(start, end, size):
        yield first, min(first + size, end)


def _cpu_count() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1
