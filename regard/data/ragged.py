"""Rows of different length side by side in one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ragged:
    """The values of all rows, one after the other, and how many each row has."""

    values: NDArray[Any]
    lengths: NDArray[np.int32]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]] | Sequence[Sequence[float]], dtype: np.dtype[Any]) -> Ragged:
        """Lists as one array. No array is made for a single row, and no object stays for a single token."""
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        wide = np.float64 if dtype.kind == "f" else np.int64
        values = np.fromiter(chain.from_iterable(rows), wide, int(lengths.sum()))
        return cls(values.astype(dtype), lengths)

    @classmethod
    def single(cls, values: Sequence[int] | Sequence[float], dtype: np.dtype[Any]) -> Ragged:
        """One value for each row."""
        return cls(np.array(values, dtype), np.ones(len(values), np.int32))
