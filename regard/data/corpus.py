"""An encoded corpus: rows of token ids, labels and the like by column, memory-mapped, so it may be larger than memory.

A folder holds `corpus.json` and two files for each column: the concatenated values of all rows, and the offset at which
each row starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from regard.checksums import check_files, without_checksums
from regard.data.length_policy import TruncationStats
from regard.data.source import FileFingerprint, fingerprints_from_json
from regard.files import read_json

METADATA_FILE = "corpus.json"
FORMAT_VERSION = 1
"""Version of the layout on disk. A corpus of another version is encoded again. Part of every cache key."""


class CorpusError(ValueError):
    """The folder does not hold a complete corpus."""


@dataclass(frozen=True)
class Column:
    """The rows of one column."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]
    """Start of each row in `values`, followed by the end of the last row."""

    def __getitem__(self, row: SupportsIndex) -> NDArray[Any]:
        i = index(row)
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Length of each row. Held in memory: four bytes per row."""
        return np.diff(self.offsets).astype(np.int32)


class Corpus:
    """Encoded examples: rows of numbers by column.

    corpus = encode(DataSource(Pair, ["train.en", "train.de"]), PairEncoder(tokenizer=tokenizer), "cache/train")
    len(corpus), corpus[0]["source"], corpus.lengths["target"]
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        metadata = _read_metadata(self.folder)
        try:
            self.num_rows: int = index(metadata["rows"])
            self.num_examples: int = index(metadata["examples"])
            """Number of examples read. A long example may have been split into several rows."""
            self.truncation = TruncationStats(**metadata["cuts"])
            self.file_fingerprints: dict[str, FileFingerprint] = fingerprints_from_json(metadata["files"])
            self.columns: Mapping[str, Column] = {
                name: _open_column(self.folder, name, np.dtype(dtype), self.num_rows)
                for name, dtype in metadata["columns"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise CorpusError(f"{self.folder / METADATA_FILE} is damaged ({error}): encode the corpus again") from None

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, row: SupportsIndex) -> dict[str, NDArray[Any]]:
        i = index(row)
        if not -self.num_rows <= i < self.num_rows:
            raise IndexError(f"row {i} is out of range for a corpus of {self.num_rows} rows")
        return {name: column[i % self.num_rows] for name, column in self.columns.items()}

    @property
    def lengths(self) -> dict[str, NDArray[np.int32]]:
        """Length of each row, by column."""
        return {name: column.lengths for name, column in self.columns.items()}

    @property
    def num_tokens(self) -> dict[str, int]:
        """Total number of values, by column."""
        return {name: int(column.offsets[-1]) for name, column in self.columns.items()}

    def summary(self) -> str:
        """Describe the size of the corpus and what was truncated or split, in one sentence."""
        sizes = ", ".join(f"{count:,} {name}" for name, count in self.num_tokens.items())
        return f"{self.num_examples:,} examples, {self.num_rows:,} rows ({sizes}); {self.truncation}"


def check_corpus(folder: Path) -> None:
    """Raise a `CorpusError` if a file of the corpus does not have its checksum. Reads all of them."""
    check_files(folder, read_json(folder / METADATA_FILE, CorpusError), CorpusError)


def _read_metadata(folder: Path) -> dict[str, Any]:
    path = folder / METADATA_FILE
    metadata = without_checksums(read_json(path, CorpusError), path, CorpusError)
    if metadata.get("version") != FORMAT_VERSION:
        raise CorpusError(f"{folder / METADATA_FILE} has another format version: encode the corpus again")
    return metadata


def _open_column(folder: Path, name: str, dtype: np.dtype[Any], rows: int) -> Column:
    offsets = _memory_map(folder / f"{name}.offsets", np.dtype(np.int64), rows + 1)
    if rows < 0 or offsets[0] != 0 or bool((np.diff(offsets) < 0).any()):
        raise CorpusError(f"{folder / name}.offsets is damaged: encode the corpus again")
    return Column(_memory_map(folder / f"{name}.values", dtype, int(offsets[-1])), offsets)


def _memory_map(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    size, expected = path.stat().st_size if path.exists() else -1, count * dtype.itemsize
    if size < 0:
        raise CorpusError(f"{path} is missing: encode the corpus again")
    if size != expected:
        raise CorpusError(f"{path} is damaged: expected {expected} bytes, found {size}; encode the corpus again")
    if count == 0:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, dtype, mode="r", shape=(count,)))  # plain arrays are faster to slice
