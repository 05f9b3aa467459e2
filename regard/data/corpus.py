"""An encoded corpus: rows of numbers by column, memory-mapped, so that it may be larger than memory.

A folder holds `corpus.json` and two files for each column: all values one after the other, and where each row begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from regard.data.length_policy import Cuts
from regard.data.source import Stamp, stamps_from_json

ABOUT = "corpus.json"
VERSION = 1
"""Of the layout on disk: a corpus of another version is made again."""


class CorpusError(ValueError):
    """A folder that holds no whole corpus."""


@dataclass(frozen=True)
class Column:
    """The rows of one column."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]
    """Where each row begins in `values`, and last where the last one ends."""

    def __getitem__(self, row: SupportsIndex) -> NDArray[Any]:
        number = index(row)
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """How long each row is. This is in memory: four bytes for each row."""
        return np.diff(self.offsets).astype(np.int32)


class Corpus:
    """Rows of numbers by column.

    corpus = encode(Source(Pair, ["train.en", "train.de"]), Pairs(tokenizer=tokenizer), "cache/train")
    len(corpus), corpus[0]["source"], corpus.lengths["target"]
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        about = _about(self.folder)
        self.rows: int = about["rows"]
        self.examples: int = about["examples"]
        """How many examples were read. A long example may have become several rows."""
        self.cuts = Cuts(**about["cuts"])
        self.files: dict[str, Stamp] = stamps_from_json(about["files"])
        self.columns: Mapping[str, Column] = {
            name: _column(self.folder, name, np.dtype(dtype), self.rows) for name, dtype in about["columns"].items()
        }

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: SupportsIndex) -> dict[str, NDArray[Any]]:
        number = index(row)
        if not -self.rows <= number < self.rows:
            raise IndexError(f"row {number} of a corpus of {self.rows}")
        return {name: column[number % self.rows] for name, column in self.columns.items()}

    @property
    def lengths(self) -> dict[str, NDArray[np.int32]]:
        """How long each row is, by column."""
        return {name: column.lengths for name, column in self.columns.items()}

    @property
    def tokens(self) -> dict[str, int]:
        """How many values each column has in all."""
        return {name: int(column.offsets[-1]) for name, column in self.columns.items()}

    def report(self) -> str:
        """What was read, and what was too long, in a sentence."""
        sizes = ", ".join(f"{count:,} {name}" for name, count in self.tokens.items())
        return f"{self.examples:,} examples, {self.rows:,} rows ({sizes}); {self.cuts}"


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(f"{folder} holds no corpus ({error})") from None
    if not isinstance(about, dict) or about.get("version") != VERSION:
        raise CorpusError(f"{folder / ABOUT} was not written by this version: make the corpus again")
    return about


def _column(folder: Path, name: str, dtype: np.dtype[Any], rows: int) -> Column:
    offsets = _mapped(folder / f"{name}.offsets", np.dtype(np.int64), rows + 1)
    return Column(_mapped(folder / f"{name}.values", dtype, int(offsets[-1])), offsets)


def _mapped(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    found = path.stat().st_size if path.exists() else -1
    if found != count * dtype.itemsize:
        raise CorpusError(f"{path} should have {count * dtype.itemsize} bytes and has {found}: make the corpus again")
    if count == 0:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, dtype, mode="r", shape=(count,)))  # plain arrays are quicker to slice
