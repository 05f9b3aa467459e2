"""Write a matrix to a `.npy` file row by row, in constant memory: the number of rows is not known before the end."""

from __future__ import annotations

from collections.abc import Sequence
from io import BufferedWriter
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.lib import format as npy


class MatrixFile:
    """A `.npy` file with rows of equal length, written one after the other.

    numpy leaves room in the header for a larger number of rows, so the header is written again at the end.
    """

    def __init__(self, path: Path, dtype: type[np.generic]) -> None:
        self.path, self.dtype = path, np.dtype(dtype)
        self.num_rows, self.dim = 0, 0
        self._file: BufferedWriter = path.open("wb")

    def append(self, row: Sequence[float] | Sequence[int]) -> None:
        """Write one row."""
        if not self.num_rows:
            self.dim = len(row)
            self._header_size = self._write_header()
        if len(row) != self.dim:
            raise ValueError(f"{self.path}: row {self.num_rows} has {len(row)} numbers, the first has {self.dim}")
        self._file.write(np.array(row, self.dtype).tobytes())
        self.num_rows += 1

    def _write_header(self) -> int:
        header: dict[str, Any] = {
            "descr": npy.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.num_rows, self.dim),
        }
        self._file.seek(0)
        npy.write_array_header_1_0(self._file, header)
        return self._file.tell()

    def __enter__(self) -> MatrixFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                size = self._write_header()
                assert not self.num_rows or size == self._header_size, "numpy reserves room for the number of rows"
