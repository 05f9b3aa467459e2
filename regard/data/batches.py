"""Batches by a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from numpy.typing import NDArray
from torch import Tensor

from regard.data.corpus import Column, Corpus
from regard.data.document_packing import pack
from regard.data.epoch_plan import Numbers, Plan, by_length, padded_area, shuffled
from regard.transformer.batch_layout import Rows


class TooLong(Enum):
    """What to do with a row that alone exceeds the budget."""

    REFUSE = "refuse"
    ALONE = "alone"
    """It is a batch of its own, larger than the budget."""
    SKIP = "skip"
    """It is left out; `skipped` says which."""


@dataclass(frozen=True)
class ByLength:
    """Rows of like length together. Rows × longest row is at most `tokens` in each column."""

    tokens: int = 4096
    too_long: TooLong = TooLong.REFUSE


@dataclass(frozen=True)
class Packed:
    """Documents side by side in random order, at most `tokens` in a batch, cut into pieces of at most `length`."""

    tokens: int = 4096
    length: int = 512

    def __post_init__(self) -> None:
        if not 2 <= self.length <= self.tokens:
            raise ValueError(
                f"pieces of {self.length} tokens in batches of {self.tokens}: a piece must have at least 2 tokens, and "
                "fit into a batch"
            )


@dataclass(frozen=True)
class Ids:
    """One column of a batch: the tokens of all rows side by side, as networks take them."""

    tokens: Shaped[Tensor, " tokens"]
    rows: Rows

    def padded(self, fill: int = 0) -> Shaped[Tensor, "batch longest"]:
        """The same as a rectangle, filled up on the right."""
        if self.rows.uniform:
            return self.rows.pad(self.tokens)
        whole = self.tokens.new_full((self.rows.batch, self.rows.longest), fill)
        return whole.index_put((self.rows.row_of, self.rows.columns), self.tokens)

    def twice(self) -> Ids:
        """All rows, and then all rows once more."""
        return Ids(self.tokens.repeat(2), Rows.of(2 * self.rows.lengths, self.rows.device, 2 * self.rows.starts))


@dataclass(frozen=True)
class Batch:
    """Some rows of a corpus."""

    columns: Mapping[str, Ids]
    indices: NDArray[np.int64]
    """Which rows of the corpus these are."""
    epoch: int
    step: int
    """Which batch of the epoch this is."""

    def __getitem__(self, name: str) -> Ids:
        return self.columns[name]

    def twice(self) -> Batch:
        """All rows, and then all rows once more."""
        columns = {name: ids.twice() for name, ids in self.columns.items()}
        return replace(self, columns=columns, indices=np.tile(self.indices, 2))


class Batches:
    """The rows of a corpus in batches, each row exactly once an epoch, in an order that the seed fixes.

        batches = Batches(corpus, ByLength(tokens=4096), seed=1)
        for batch in batches.at(epoch=3, step=120): ...      # goes on into epoch 4, 5, …
        for batch in batches.epoch(0): ...                   # one epoch

    Nothing is read to get to a step: lengths are enough to know which rows it has.
    """

    def __init__(self, corpus: Corpus, arrangement: ByLength | Packed | None = None, *, seed: int = 0) -> None:
        self.corpus, self.seed = corpus, seed
        self.arrangement = arrangement or ByLength()
        self.skipped: Numbers = np.empty(0, np.int64)
        """Rows that are left out: those beyond the budget with `TooLong.SKIP`, those of one token with `Packed`."""
        self._kept: Numbers = np.arange(len(corpus))
        self._last: tuple[int, Plan] | None = None
        match self.arrangement:
            case ByLength():
                self._sort(self.arrangement)
            case Packed():
                self.skipped = np.flatnonzero(self._documents().lengths < 2)
        if len(self.skipped) == len(corpus):
            raise ValueError(f"none of the {len(corpus):,} rows can be used: all are left out")

    @property
    def fingerprint(self) -> str:
        """A name for exactly these batches."""
        return f"{self.corpus.folder.name}, {self.arrangement}, seed {self.seed}"

    def _sort(self, arrangement: ByLength) -> None:
        longest = np.max(np.stack(list(self.corpus.lengths.values())), axis=0)
        over = longest > arrangement.tokens
        if over.any() and arrangement.too_long is not TooLong.ALONE:
            self._kept, self.skipped = np.flatnonzero(~over), np.flatnonzero(over)
            if arrangement.too_long is TooLong.REFUSE:
                raise ValueError(self._refused(longest, arrangement.tokens))
        columns = [lengths[self._kept] for lengths in self.corpus.lengths.values() if lengths.max(initial=0) > 1]
        self._places, self._bounds = by_length(columns or [longest[self._kept]], arrangement.tokens)

    def _refused(self, longest: NDArray[Any], tokens: int) -> str:
        rows = ", ".join(str(row) for row in self.skipped[:5])
        return (
            f"{len(self.skipped):,} rows have more than {tokens} tokens, the longest {longest.max():,} (rows {rows}"
            f"{', …' if len(self.skipped) > 5 else ''}). Raise the budget, shorten them when encoding (Cut, Windowed), "
            f"or choose TooLong.ALONE or TooLong.SKIP"
        )

    def plan(self, epoch: int) -> Plan:
        """Which rows form which batch in this epoch."""
        if self._last is None or self._last[0] != epoch:
            self._last = epoch, self._plan(epoch)
        return self._last[1]

    def _plan(self, epoch: int) -> Plan:
        if isinstance(self.arrangement, Packed):
            return pack(self._documents().lengths, self.arrangement.length, self.arrangement.tokens, self.seed, epoch)
        mixed = shuffled(len(self._kept), self.seed, epoch, purpose=0)
        order = mixed[np.argsort(self._places[mixed], kind="stable")]
        steps = shuffled(len(self._bounds) - 1, self.seed, epoch, purpose=1)
        return Plan(self._kept[order], self._bounds, steps)

    def _documents(self) -> Column:
        names = list(self.corpus.columns)
        if len(names) != 1:
            raise ValueError(f"only plain text can be packed, and this corpus has the columns {', '.join(names)}")
        return self.corpus.columns[names[0]]

    def steps(self, epoch: int = 0) -> int:
        """How many batches an epoch has."""
        return len(self.plan(epoch))

    def get(self, epoch: int, step: int) -> Batch:
        """One batch."""
        rows, pieces = self.plan(epoch).batch(step)
        columns = {name: _ids(column, rows, pieces) for name, column in self.corpus.columns.items()}
        return Batch(columns, rows, epoch, step)

    def of(self, rows: Numbers) -> Batch:
        """These rows of the corpus as a batch of their own, whole."""
        columns = {name: _ids(column, rows, None) for name, column in self.corpus.columns.items()}
        return Batch(columns, rows, 0, 0)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from a step on."""
        steps = self.steps(epoch)
        if not 0 <= start <= steps:
            raise IndexError(f"step {start} of epoch {epoch}, which has {steps} steps")
        for step in range(start, steps):
            yield self.get(epoch, step)

    def at(self, epoch: int = 0, step: int = 0) -> Iterator[Batch]:
        """All batches from this step of this epoch on, epoch after epoch, without end."""
        while True:
            yield from self.epoch(epoch, step)
            epoch, step = epoch + 1, 0

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def waste(self, epoch: int = 0) -> float:
        """The share of padding, were batches padded to rectangles. Packed rows, as networks take them, have none."""
        plan = self.plan(epoch)
        if plan.pieces is None:
            lengths = np.stack([column[plan.rows] for column in self.corpus.lengths.values()]).astype(np.int64)
        else:
            lengths = (plan.pieces[1] - plan.pieces[0])[None]
        return 1 - int(lengths.sum()) / padded_area(lengths, plan.bounds)


def _ids(column: Column, rows: Numbers, pieces: tuple[Numbers, Numbers] | None) -> Ids:
    first = column.offsets[rows]
    begins, ends = (first, column.offsets[rows + 1]) if pieces is None else (first + pieces[0], first + pieces[1])
    values = np.concatenate([column.values[begin:end] for begin, end in zip(begins, ends, strict=True)])
    wide = np.float32 if values.dtype.kind == "f" else np.int64
    return Ids(torch.from_numpy(values.astype(wide)), Rows.of((ends - begins).tolist()))
