"""Spearman's rank correlation, with the mean rank for equal values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the correlation of the ranks of two lists; 0 if all values of one are equal."""
    if len(left) != len(right):
        raise ValueError(f"{len(left)} and {len(right)} values: expected as many")
    first, second = (ranks - ranks.mean() for ranks in (mean_ranks(left), mean_ranks(right)))
    size = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size else 0.0


def mean_ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return the rank of each value, from 1; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return ranks
