"""Metrics of retrieval: how often what belongs to a query is among the nearest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def recall_at_k(
    similarities: NDArray[np.floating], relevant: Sequence[Sequence[int]], ks: Sequence[int] = (1, 5, 10)
) -> dict[str, float]:
    """Return for each k the share of queries with a relevant item among the k most similar.

    `similarities` has a row for each query and a column for each item; `relevant` names the columns that are right for
    each query. An item counts as found if fewer than k items are more similar; of equal ones, the first comes first.
    """
    if len(similarities) != len(relevant) or not all(len(columns) for columns in relevant):
        raise ValueError(f"{len(similarities)} queries, but relevant items for {sum(map(bool, relevant))}")
    ranks = []
    for row, columns in zip(similarities, relevant, strict=True):
        best = min(_rank(row, column) for column in columns)
        ranks.append(best)
    return {f"recall@{k}": float(np.mean([rank < k for rank in ranks])) for k in ks}


def _rank(row: NDArray[np.floating], column: int) -> int:
    """Return how many items come before this one."""
    return int((row > row[column]).sum() + (row[:column] == row[column]).sum())
