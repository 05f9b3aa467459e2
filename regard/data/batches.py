"""Batches of a corpus, limited by a token budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from regard.data.corpus import Column, Corpus
from regard.data.document_packing import pack_documents
from regard.data.epoch_plan import EpochPlan, IntArray, bucket_by_length, padded_size, random_permutation
from regard.data.random_keys import second_copy, sequence_keys, to_tensor
from regard.transformer.batch_layout import BatchLayout


class OversizePolicy(Enum):
    """What to do with a single row that exceeds the token budget.

    The values are part of fingerprints in training states, so they must not change.
    """

    ERROR = "refuse"
    """Raise an error."""
    OWN_BATCH = "alone"
    """Put the row into a batch of its own, which exceeds the budget."""
    SKIP = "skip"
    """Leave the row out and list it in `skipped_rows`."""


@dataclass(frozen=True)
class LengthBatching:
    """Batches of rows of similar length (bucketing). In each column, rows × longest row is at most `batch_tokens`."""

    batch_tokens: int = 4096
    oversize: OversizePolicy = OversizePolicy.ERROR

    def fingerprint(self) -> str:
        """Fingerprint stored in training states, with the names of version 0.1, so that old runs resume."""
        policy = self.oversize.value
        return f"ByLength(tokens={self.batch_tokens}, too_long=<TooLong.{policy.upper()}: {policy!r}>)"


@dataclass(frozen=True)
class PackedBatching:
    """Documents packed in random order: chunks of at most `max_length` tokens, at most `batch_tokens` per batch."""

    batch_tokens: int = 4096
    max_length: int = 512

    def __post_init__(self) -> None:
        if not 2 <= self.max_length <= self.batch_tokens:
            raise ValueError(
                f"max_length is {self.max_length} and batch_tokens is {self.batch_tokens}: "
                "max_length must be at least 2 and at most batch_tokens"
            )

    def fingerprint(self) -> str:
        """Fingerprint stored in training states, with the names of version 0.1, so that old runs resume."""
        return f"Packed(tokens={self.batch_tokens}, length={self.max_length})"


@dataclass(frozen=True)
class PackedColumn:
    """One column of a batch: the values of all rows concatenated without padding, as networks expect them."""

    values: Shaped[Tensor, " values"]
    layout: BatchLayout

    def to_padded(self, padding_value: int = 0) -> Shaped[Tensor, "batch longest"]:
        """Return the rows as a right-padded tensor."""
        if self.layout.uniform:
            return self.layout.pad(self.values)
        padded = self.values.new_full((self.layout.batch_size, self.layout.longest), padding_value)
        return padded.index_put((self.layout.row_indices, self.layout.column_indices), self.values)

    def duplicate(self) -> PackedColumn:
        """Concatenate the rows with themselves. The random draws of the second copy are others."""
        layout = BatchLayout.of(2 * self.layout.lengths, self.layout.device, 2 * self.layout.start_positions)
        if self.layout.sequence_keys is not None:
            keys = torch.cat([self.layout.sequence_keys, second_copy(self.layout.sequence_keys)])
            layout = layout.with_sequence_keys(keys)
        return PackedColumn(self.values.repeat(2), layout)

    def with_sequence_keys(self, keys: Int[Tensor, " rows"] | None) -> PackedColumn:
        """Return the same column with other keys for random draws."""
        return PackedColumn(self.values, self.layout.with_sequence_keys(keys))


@dataclass(frozen=True)
class Batch:
    """A batch of rows of a corpus."""

    columns: Mapping[str, PackedColumn]
    indices: NDArray[np.int64]
    """Indices of the rows in the corpus."""
    epoch: int
    step: int
    """Index of the batch in its epoch."""
    starts: NDArray[np.int64] | None = None
    """The first token of each row, if rows are chunks of documents."""

    def __getitem__(self, name: str) -> PackedColumn:
        return self.columns[name]

    def duplicate(self) -> Batch:
        """Concatenate the batch with itself."""
        columns = {name: column.duplicate() for name, column in self.columns.items()}
        starts = None if self.starts is None else np.tile(self.starts, 2)
        return replace(self, columns=columns, indices=np.tile(self.indices, 2), starts=starts)

    def with_random_keys(self, seed: int) -> Batch:
        """Return the batch with keys for random draws, which depend on the seed, the epoch and the rows alone."""
        keys = to_tensor(sequence_keys(seed, self.epoch, self.indices, self.starts))
        columns = {name: column.with_sequence_keys(keys) for name, column in self.columns.items()}
        return replace(self, columns=columns)

    def second_copy(self) -> Batch:
        """Return the same batch with other random draws, those of the second half of `duplicate`."""
        keys = {name: column.layout.sequence_keys for name, column in self.columns.items()}
        others = {name: None if each is None else second_copy(each) for name, each in keys.items()}
        columns = {name: column.with_sequence_keys(others[name]) for name, column in self.columns.items()}
        return replace(self, columns=columns)


class Batches:
    """Batches of a corpus: each row exactly once per epoch, in an order determined by the seed.

        batches = Batches(corpus, LengthBatching(batch_tokens=4096), seed=1)
        for batch in batches.iter_from(epoch=3, step=120): ...      # continues with epochs 4, 5, …
        for batch in batches.epoch(0): ...                          # one epoch

    Random access to any step reads no other rows: the lengths alone determine which rows a batch holds.
    """

    def __init__(
        self, corpus: Corpus, batching: LengthBatching | PackedBatching | None = None, *, seed: int = 0
    ) -> None:
        self.corpus, self.seed = corpus, seed
        self.batching = batching or LengthBatching()
        self.skipped_rows: IntArray = np.empty(0, np.int64)
        """Rows left out: with `OversizePolicy.SKIP` those over the budget, with `PackedBatching` those of one token."""
        self._usable_rows: IntArray = np.arange(len(corpus))
        self._cached_plan: tuple[int, EpochPlan] | None = None
        match self.batching:
            case LengthBatching():
                self._sort_by_length(self.batching)
            case PackedBatching():
                self.skipped_rows = np.flatnonzero(self._document_column().lengths < 2)
        if len(self.skipped_rows) == len(corpus):
            raise ValueError(f"all {len(corpus):,} rows were skipped: none fits the batching options")

    @property
    def fingerprint(self) -> str:
        """Fingerprint of these batches: corpus, batching and seed."""
        return f"{self.corpus.folder.name}, {self.batching.fingerprint()}, seed {self.seed}"

    def _sort_by_length(self, batching: LengthBatching) -> None:
        longest = np.max(np.stack(list(self.corpus.lengths.values())), axis=0)
        over = longest > batching.batch_tokens
        if over.any() and batching.oversize is not OversizePolicy.OWN_BATCH:
            self._usable_rows, self.skipped_rows = np.flatnonzero(~over), np.flatnonzero(over)
            if batching.oversize is OversizePolicy.ERROR:
                raise ValueError(self._oversize_message(longest, batching.batch_tokens))
        columns = [lengths[self._usable_rows] for lengths in self.corpus.lengths.values() if lengths.max(initial=0) > 1]
        self._sort_keys, self._batch_bounds = bucket_by_length(
            columns or [longest[self._usable_rows]], batching.batch_tokens
        )

    def _oversize_message(self, longest: NDArray[Any], batch_tokens: int) -> str:
        rows = ", ".join(str(row) for row in self.skipped_rows[:5]) + (", …" if len(self.skipped_rows) > 5 else "")
        return (
            f"{len(self.skipped_rows):,} rows exceed batch_tokens={batch_tokens}; "
            f"the longest has {longest.max():,} tokens (rows {rows}). Raise batch_tokens, encode with Truncation or "
            f"SlidingWindow, or set oversize to OversizePolicy.OWN_BATCH or OversizePolicy.SKIP"
        )

    def epoch_plan(self, epoch: int) -> EpochPlan:
        """Return the plan of an epoch: which rows form which batch."""
        if self._cached_plan is None or self._cached_plan[0] != epoch:
            self._cached_plan = epoch, self._make_epoch_plan(epoch)
        return self._cached_plan[1]

    def _make_epoch_plan(self, epoch: int) -> EpochPlan:
        if isinstance(self.batching, PackedBatching):
            return pack_documents(
                self._document_column().lengths, self.batching.max_length, self.batching.batch_tokens, self.seed, epoch
            )
        permutation = random_permutation(len(self._usable_rows), self.seed, epoch, purpose=0)
        order = permutation[np.argsort(self._sort_keys[permutation], kind="stable")]
        steps = random_permutation(len(self._batch_bounds) - 1, self.seed, epoch, purpose=1)
        return EpochPlan(self._usable_rows[order], self._batch_bounds, steps)

    def _document_column(self) -> Column:
        names = list(self.corpus.columns)
        if len(names) != 1:
            raise ValueError(f"PackedBatching needs a corpus with one column; this one has {', '.join(names)}")
        return self.corpus.columns[names[0]]

    def steps(self, epoch: int = 0) -> int:
        """Return the number of batches in an epoch."""
        return len(self.epoch_plan(epoch))

    def total_steps(self, epochs: float) -> int:
        """Return the number of batches in the first epochs; of the last one a part, as in 2.5."""
        whole = int(epochs)
        if isinstance(self.batching, LengthBatching):  # every epoch has the same number
            complete = whole * self.steps(0)
        else:
            complete = sum(map(self.steps, range(whole)))
        return complete + (round((epochs - whole) * self.steps(whole)) if epochs > whole else 0)

    def get(self, epoch: int, step: int) -> Batch:
        """Return one batch."""
        rows, chunks = self.epoch_plan(epoch).batch(step)
        columns = {name: _gather_column(column, rows, chunks) for name, column in self.corpus.columns.items()}
        return Batch(columns, rows, epoch, step, None if chunks is None else chunks[0])

    def select(self, rows: IntArray) -> Batch:
        """Return the given rows of the corpus, complete, as one batch."""
        columns = {name: _gather_column(column, rows, None) for name, column in self.corpus.columns.items()}
        return Batch(columns, rows, 0, 0)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """Iterate over the batches of one epoch, starting at a step."""
        steps = self.steps(epoch)
        if not 0 <= start_step <= steps:
            raise IndexError(f"step {start_step} is out of range: epoch {epoch} has {steps} steps")
        for step in range(start_step, steps):
            yield self.get(epoch, step)

    def iter_from(self, epoch: int = 0, step: int = 0) -> Iterator[Batch]:
        """Iterate over the batches from this step on, epoch after epoch, without end."""
        while True:
            yield from self.epoch(epoch, step)
            epoch, step = epoch + 1, 0

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def padding_ratio(self, epoch: int = 0) -> float:
        """Fraction of padding if the batches of an epoch were padded to (batch, longest).

        Networks take packed rows, which have no padding.
        """
        plan = self.epoch_plan(epoch)
        if plan.chunks is None:
            lengths = np.stack([column[plan.rows] for column in self.corpus.lengths.values()]).astype(np.int64)
        else:
            lengths = (plan.chunks[1] - plan.chunks[0])[None]
        return 1 - int(lengths.sum()) / padded_size(lengths, plan.bounds)


def _gather_column(column: Column, rows: IntArray, chunks: tuple[IntArray, IntArray] | None) -> PackedColumn:
    offsets = column.offsets[rows]
    starts, ends = (offsets, column.offsets[rows + 1]) if chunks is None else (offsets + chunks[0], offsets + chunks[1])
    values = np.concatenate([column.values[start:end] for start, end in zip(starts, ends, strict=True)])
    dtype = np.float32 if values.dtype.kind == "f" else np.int64
    return PackedColumn(torch.from_numpy(values.astype(dtype)), BatchLayout.of((ends - starts).tolist()))
