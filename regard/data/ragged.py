"""Rows of different lengths concatenated in one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RaggedArray:
    """The concatenated values of all rows, and the length of each row."""

    values: NDArray[Any]
    lengths: NDArray[np.int32]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]] | Sequence[Sequence[float]], dtype: np.dtype[Any]) -> RaggedArray:
        """Concatenate lists. No array is created per row, and no Python object is kept per token."""
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        wide_dtype = np.float64 if dtype.kind == "f" else np.int64
        values = np.fromiter(chain.from_iterable(rows), wide_dtype, int(lengths.sum()))
        return cls(values.astype(dtype), lengths)

    @classmethod
    def from_scalars(cls, values: Sequence[int] | Sequence[float], dtype: np.dtype[Any]) -> RaggedArray:
        """Build rows of one value each."""
        return cls(np.array(values, dtype), np.ones(len(values), np.int32))
