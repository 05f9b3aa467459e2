"""The layout of a packed batch: which tokens belong to which sequence.

Inside the network a batch is packed: the tokens of all sequences are concatenated, without padding. Position-wise
layers (embedding, norm, feed-forward, head) work on the packed tokens and need nothing else. Only attention needs to
know where each sequence starts and ends. `BatchLayout` holds that.

    input, padded              inside, packed                   BatchLayout
    [ the cat sat   .  ]                                        lengths (3, 4, 2)
    [ a   dog sat down ]  -->  [the cat sat a dog sat down      positions 0 1 2 0 1 2 3 0 1
    [ .   .   it  ran  ]        it ran]                         groups: seq 0 | seq 1 | seq 2

Consecutive sequences of equal length form a group. Attention over a group is one batched computation. A batch whose
sequences all have the same length is a single group, and viewing it as batch × length does not copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from operator import add
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class EqualLengthGroup:
    """Consecutive sequences of equal length."""

    rows: slice
    """Indices of the sequences in the batch."""
    tokens: slice
    """Indices of their tokens in the packed batch."""
    length: int
    """Length of each sequence."""

    @property
    def count(self) -> int:
        """Number of sequences."""
        return int(self.rows.stop - self.rows.start)


@dataclass(frozen=True)
class BatchLayout:
    """Lengths and start positions of the sequences of a packed batch."""

    lengths: tuple[int, ...]
    """Number of tokens of each sequence in this batch."""
    start_positions: tuple[int, ...]
    """Position of the first token of each sequence: 0, or the number of its tokens that a cache already holds."""
    device: torch.device
    """Device of the index tensors."""
    sequence_keys: Int[Tensor, " batch_size"] | None = field(default=None, repr=False, compare=False)
    """In training, a number for each sequence that its random draws depend on (`regard/data/random_keys.py`)."""

    @classmethod
    def of(
        cls, lengths: Sequence[int], device: torch.device | str = "cpu", starts: Sequence[int] | None = None
    ) -> BatchLayout:
        """Create the layout of sequences of these lengths. `starts` defaults to zeros."""
        if not lengths or min(lengths) < 1:
            raise ValueError(f"every sequence needs at least one token, found lengths {list(lengths)[:8]}")
        return cls(tuple(lengths), tuple(starts) if starts else (0,) * len(lengths), torch.device(device))

    def with_sequence_keys(self, keys: Int[Tensor, " batch_size"] | None) -> BatchLayout:
        """Return the same layout with other keys for random draws."""
        return replace(self, sequence_keys=keys)

    @property
    def batch_size(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @cached_property
    def num_tokens(self) -> int:
        """Total number of tokens."""
        return sum(self.lengths)

    @cached_property
    def longest(self) -> int:
        """Length of the longest sequence."""
        return max(self.lengths)

    @cached_property
    def first_position(self) -> int:
        """Smallest start position."""
        return min(self.start_positions)

    @cached_property
    def end_position(self) -> int:
        """Largest end position (exclusive)."""
        return max(start + length for start, length in zip(self.start_positions, self.lengths, strict=True))

    @cached_property
    def uniform(self) -> bool:
        """Whether all sequences have the same length."""
        return len(set(self.lengths)) == 1

    @cached_property
    def aligned(self) -> bool:
        """Whether all sequences start at the same position."""
        return len(set(self.start_positions)) == 1

    @cached_property
    def positions(self) -> Int[Tensor, " num_tokens"]:
        """Position of each token in its sequence."""
        if self.num_tokens == self.batch_size:
            return int_tensor(self.start_positions, self.device)
        return self.column_indices + (
            self.start_positions[0] if self.aligned else self._repeat_per_token(self.start_positions)
        )

    @cached_property
    def column_indices(self) -> Int[Tensor, " num_tokens"]:
        """Index of each token among the tokens of its sequence in this batch (ignores start positions)."""
        if self.uniform:
            return torch.arange(self.longest, device=self.device).repeat(self.batch_size)
        offsets = [0, *accumulate(self.lengths[:-1])]
        return torch.arange(self.num_tokens, device=self.device) - self._repeat_per_token(offsets)

    @cached_property
    def row_indices(self) -> Int[Tensor, " num_tokens"]:
        """Index of the sequence of each token."""
        return self._repeat_per_token(range(self.batch_size))

    @cached_property
    def last_indices(self) -> Int[Tensor, " batch_size"]:
        """Index of the last token of each sequence in the packed batch."""
        return torch.tensor(list(accumulate(self.lengths)), device=self.device) - 1

    @cached_property
    def first_indices(self) -> Int[Tensor, " batch_size"]:
        """Index of the first token of each sequence in the packed batch."""
        return torch.tensor([0, *accumulate(self.lengths[:-1])], device=self.device)

    @cached_property
    def groups(self) -> tuple[EqualLengthGroup, ...]:
        """Runs of consecutive sequences of equal length."""
        return tuple(self._equal_length_groups())

    def group_positions(self, group: EqualLengthGroup) -> Int[Tensor, "#rows length"]:
        """Positions of the tokens of a group; a single row if all its sequences start at the same position."""
        key = (group.rows.start, group.rows.stop)
        if key not in self._memo:
            starts, columns = self.start_positions[group.rows], self.arange(group.length)
            aligned = len(set(starts)) == 1
            self._memo[key] = columns + (starts[0] if aligned else torch.tensor(starts, device=self.device)[:, None])
        positions: Tensor = self._memo[key]
        return positions

    def arange(self, count: int) -> Int[Tensor, "1 count"]:
        """Return 0, 1, …, count - 1 as a row, memoised."""
        if count not in self._memo:
            self._memo[count] = torch.arange(count, device=self.device)[None]
        indices: Tensor = self._memo[count]
        return indices

    def lengths_after(self, past_lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Return the lengths of sequences that had `past_lengths` tokens after this batch is appended."""
        key = ("lengths_after", past_lengths)
        if key not in self._memo:
            self._memo[key] = tuple(map(add, past_lengths, self.lengths))
        lengths: tuple[int, ...] = self._memo[key]
        return lengths

    @cached_property
    def _memo(self) -> dict[object, Any]:
        """Values that all blocks of a stack use, computed once."""
        return {}

    def paired_groups(self, other: BatchLayout) -> Iterator[tuple[EqualLengthGroup, EqualLengthGroup]]:
        """Pair groups of queries (self) and keys (other); within a pair, all queries and all keys have equal length."""
        if self.uniform and other.uniform:
            yield self.groups[0], other.groups[0]
            return
        pairs = list(zip(self.lengths, other.lengths, strict=True))
        query_groups, key_groups = BatchLayout._runs(pairs, 0), BatchLayout._runs(pairs, 1)
        yield from zip(query_groups, key_groups, strict=True)

    def pad(self, packed: Shaped[Tensor, " tokens *rest"]) -> Shaped[Tensor, "batch longest *rest"]:
        """Convert packed tokens to a padded tensor; short sequences are padded with zeros on the right."""
        if self.uniform:
            return packed.view(self.batch_size, self.longest, *packed.shape[1:])
        padded = packed.new_zeros(self.batch_size, self.longest, *packed.shape[1:])
        return padded.index_put((self.row_indices, self.column_indices), packed)

    def pack(self, padded: Shaped[Tensor, "batch longest *rest"]) -> Shaped[Tensor, " tokens *rest"]:
        """Convert a padded tensor to packed tokens: the inverse of `pad`."""
        if self.uniform:
            return padded.reshape(self.num_tokens, *padded.shape[2:])
        return padded[self.row_indices, self.column_indices]

    def _repeat_per_token(self, values: Sequence[int]) -> Tensor:
        lengths = torch.tensor(self.lengths, device=self.device)
        return torch.tensor(list(values), device=self.device).repeat_interleave(lengths, output_size=self.num_tokens)

    def _equal_length_groups(self) -> Iterator[EqualLengthGroup]:
        return BatchLayout._runs([(length,) for length in self.lengths], 0)

    @staticmethod
    def _runs(keys: Sequence[tuple[int, ...]], which: int) -> Iterator[EqualLengthGroup]:
        """Group runs of equal keys; `which` selects the element of the key that is the length."""
        row = token = 0
        while row < len(keys):
            stop = row
            while stop < len(keys) and keys[stop] == keys[row]:
                stop += 1
            length = keys[row][which]
            yield EqualLengthGroup(slice(row, stop), slice(token, token + (stop - row) * length), length)
            token += (stop - row) * length
            row = stop


def int_tensor(values: Iterable[int], device: torch.device) -> Int[Tensor, " count"]:
    """Convert one or more integers to a tensor.

    `torch.tensor` converts element by element, which in a decode step would take as long as a matrix product.
    """
    return torch.frombuffer(array("q", values), dtype=torch.long).to(device)


def layout_from_mask(
    real: Bool[Tensor, "batch length"], starts: Sequence[int] | None = None
) -> tuple[BatchLayout, Int[Tensor, " tokens"]]:
    """Return the layout of a padded batch, and the indices of its real tokens in the flattened tensor."""
    layout = BatchLayout.of(real.sum(dim=1).tolist(), real.device, starts)
    return layout, real.flatten().nonzero(as_tuple=True)[0]
