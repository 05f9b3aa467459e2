"""How the tokens of a batch form rows.

Inside the network the tokens of a batch stand side by side, without padding: `tokens` of them, whatever the rows.
Everything that treats each position alone (embedding, norm, feed-forward, head) needs to know no more than that.
Only attention asks where one row ends and the next begins, and `Rows` tells it.

    given, padded              inside, packed                   Rows
    [ the cat sat   .  ]                                        lengths (3, 4, 2)
    [ a   dog sat down ]  -->  [the cat sat a dog sat down      positions 0 1 2 0 1 2 3 0 1
    [ .   .   it  ran  ]        it ran]                         groups: row 0 | row 1 | row 2

Rows of equal length that follow each other form a group, and a group is computed in one go: a batch without padding
is one group, and to see it as rows costs nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import add
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """Consecutive rows of one length."""

    rows: slice
    """Which rows of the batch."""
    tokens: slice
    """Which of the tokens that stand side by side."""
    length: int
    """How long each of the rows is."""

    @property
    def count(self) -> int:
        """How many rows."""
        return int(self.rows.stop - self.rows.start)


@dataclass(frozen=True)
class Rows:
    """The lengths of the rows of a batch, and where each starts (0, or how much of it a cache already holds)."""

    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    device: torch.device

    @classmethod
    def of(
        cls, lengths: Sequence[int], device: torch.device | str = "cpu", starts: Sequence[int] | None = None
    ) -> Rows:
        """Rows of these lengths, side by side."""
        if not lengths or min(lengths) < 1:
            raise ValueError(f"each row needs at least one token, found rows of {list(lengths)[:8]} tokens")
        return cls(tuple(lengths), tuple(starts) if starts else (0,) * len(lengths), torch.device(device))

    @property
    def batch(self) -> int:
        """How many rows."""
        return len(self.lengths)

    @cached_property
    def tokens(self) -> int:
        """How many tokens in all rows together."""
        return sum(self.lengths)

    @cached_property
    def longest(self) -> int:
        """The length of the longest row."""
        return max(self.lengths)

    @cached_property
    def begin(self) -> int:
        """The first position in the row that starts earliest."""
        return min(self.starts)

    @cached_property
    def end(self) -> int:
        """The position after the last one in the row that reaches furthest."""
        return max(start + length for start, length in zip(self.starts, self.lengths, strict=True))

    @cached_property
    def uniform(self) -> bool:
        """Whether all rows are of one length."""
        return len(set(self.lengths)) == 1

    @cached_property
    def aligned(self) -> bool:
        """Whether all rows start at the same position."""
        return len(set(self.starts)) == 1

    @cached_property
    def positions(self) -> Int[Tensor, " tokens"]:
        """The position of each token in its row."""
        if self.tokens == self.batch:
            return numbers(self.starts, self.device)
        return self.columns + (self.starts[0] if self.aligned else self._repeat(self.starts))

    @cached_property
    def columns(self) -> Int[Tensor, " tokens"]:
        """The place of each token among those of its row that are in this batch."""
        if self.uniform:
            return torch.arange(self.longest, device=self.device).repeat(self.batch)
        before = [0, *accumulate(self.lengths[:-1])]
        return torch.arange(self.tokens, device=self.device) - self._repeat(before)

    @cached_property
    def row_of(self) -> Int[Tensor, " tokens"]:
        """The row of each token."""
        return self._repeat(range(self.batch))

    @cached_property
    def last(self) -> Int[Tensor, " batch"]:
        """Where the last token of each row stands."""
        return torch.tensor(list(accumulate(self.lengths)), device=self.device) - 1

    @cached_property
    def first(self) -> Int[Tensor, " batch"]:
        """Where the first token of each row stands."""
        return torch.tensor([0, *accumulate(self.lengths[:-1])], device=self.device)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The rows as groups of equal length."""
        return tuple(self._groups())

    def positions_of(self, group: Group) -> Int[Tensor, "#rows length"]:
        """The positions of a group's tokens; one line for all rows where they start together."""
        key = (group.rows.start, group.rows.stop)
        if key not in self._known:
            starts, line = self.starts[group.rows], self.places(group.length)
            together = len(set(starts)) == 1
            self._known[key] = line + (starts[0] if together else torch.tensor(starts, device=self.device)[:, None])
        found: Tensor = self._known[key]
        return found

    def places(self, count: int) -> Int[Tensor, "1 count"]:
        """0, 1, 2, …: so many places of a row."""
        if count not in self._known:
            self._known[count] = torch.arange(count, device=self.device)[None]
        found: Tensor = self._known[count]
        return found

    def behind(self, others: tuple[int, ...]) -> tuple[int, ...]:
        """How long rows of these lengths get when the tokens of these rows are put behind them."""
        key = ("behind", others)
        if key not in self._known:
            self._known[key] = tuple(map(add, others, self.lengths))
        found: tuple[int, ...] = self._known[key]
        return found

    @cached_property
    def _known(self) -> dict[object, Any]:
        """What all blocks of a stack ask for is worked out once."""
        return {}

    def together(self, other: Rows) -> Iterator[tuple[Group, Group]]:
        """The groups in which both these rows and the other's are of one length: queries and what they attend to."""
        if self.uniform and other.uniform:
            yield self.groups[0], other.groups[0]
            return
        pairs = list(zip(self.lengths, other.lengths, strict=True))
        mine, others = Rows._runs(pairs, 0), Rows._runs(pairs, 1)
        yield from zip(mine, others, strict=True)

    def pad(self, packed: Shaped[Tensor, tokens * rest]) -> Shaped[Tensor, "batch longest *rest"]:
        """Tokens side by side as a rectangle, short rows filled up with zeros on the right."""
        if self.uniform:
            return packed.view(self.batch, self.longest, *packed.shape[1:])
        padded = packed.new_zeros(self.batch, self.longest, *packed.shape[1:])
        return padded.index_put((self.row_of, self.columns), packed)

    def pack(self, padded: Shaped[Tensor, "batch longest *rest"]) -> Shaped[Tensor, tokens * rest]:
        """The inverse of `pad`."""
        if self.uniform:
            return padded.reshape(self.tokens, *padded.shape[2:])
        return padded[self.row_of, self.columns]

    def _repeat(self, values: Sequence[int]) -> Tensor:
        lengths = torch.tensor(self.lengths, device=self.device)
        return torch.tensor(list(values), device=self.device).repeat_interleave(lengths, output_size=self.tokens)

    def _groups(self) -> Iterator[Group]:
        return Rows._runs([(length,) for length in self.lengths], 0)

    @staticmethod
    def _runs(keys: Sequence[tuple[int, ...]], which: int) -> Iterator[Group]:
        """Runs of equal keys, as groups of the rows whose length is the key's `which`-th number."""
        row = token = 0
        while row < len(keys):
            stop = row
            while stop < len(keys) and keys[stop] == keys[row]:
                stop += 1
            length = keys[row][which]
            yield Group(slice(row, stop), slice(token, token + (stop - row) * length), length)
            token += (stop - row) * length
            row = stop


def numbers(values: Iterable[int], device: torch.device) -> Int[Tensor, " count"]:
    """Whole numbers, one at least, as a tensor. (`torch.tensor` looks at each by itself: a token that is written would
    wait for it as long as for a matrix.)"""
    return torch.frombuffer(array("q", values), dtype=torch.long).to(device)


def rows_of_padded(
    real: Bool[Tensor, "batch length"], starts: Sequence[int] | None = None
) -> tuple[Rows, Int[Tensor, " tokens"]]:
    """The rows of a padded batch, and where its real tokens stand when the rectangle is read line by line."""
    rows = Rows.of(real.sum(dim=1).tolist(), real.device, starts)
    return rows, real.flatten().nonzero(as_tuple=True)[0]
