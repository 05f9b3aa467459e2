"""What a network has read of some rows, and what it says comes next.

All kinds of networks are asked in the same way: `read` the new tokens of every row, `keep` some of the rows in some
order, `take` some of them apart, `spread` each over several places, `add` the rows of another reading. Only this file
knows how each is called.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.transformer.batch_layout import Rows, numbers
from regard.transformer.head_base import Scored
from regard.transformer.mask import Explicit
from regard.transformer.network import DecoderOnly, EncoderDecoder, Output
from regard.transformer.two_stream import TwoStream

Writer = DecoderOnly | EncoderDecoder | TwoStream
"""The networks that can write."""
Tokens = Sequence[Sequence[int]]
Logits = Float[Tensor, "rows vocabulary"]
AnyReading = TypeVar("AnyReading", bound="Reading")


@runtime_checkable
class Reading(Protocol):
    """What has been read."""

    def read(self, new: Tokens) -> Logits:
        """Read the new tokens of each row; what the network says comes behind them."""

    def keep(self, order: Sequence[int]) -> None:
        """Keep these rows, in this order; a row that is named twice is copied."""

    def take(self: AnyReading, rows: Sequence[int]) -> AnyReading:
        """A reading of these rows alone, beside this one."""

    def spread(self, copies: int) -> None:
        """Copy every row so many times, side by side."""

    def add(self: AnyReading, other: AnyReading, rows: Sequence[int], copies: int) -> None:
        """Put these rows of another reading of the same network behind these, each so many times, side by side."""


def begin(network: Writer, sources: Tokens | None) -> Reading:
    """Nothing read yet, but the sources of rows that have them."""
    match network:
        case DecoderOnly():
            return Decoding(network)
        case EncoderDecoder():
            assert sources is not None
            return Translating(network, sources)
        case TwoStream():
            return Rereading(network)


class Decoding:
    """A decoder with its cache, or its memory."""

    def __init__(self, network: DecoderOnly) -> None:
        self.network, self.device = network, device_of(network)
        self.cache = network.new_cache()

    def read(self, new: Tokens) -> Logits:
        """Read the new tokens."""
        tokens, rows = packed(new, self.device)
        return _said(self.network(tokens, rows=rows, cache=self.cache, scored=Scored.LAST))

    def keep(self, order: Sequence[int]) -> None:
        """Keep these rows of the cache."""
        self.cache.reorder(order)

    def take(self, rows: Sequence[int]) -> Decoding:
        """These rows of the cache."""
        taken = copy.copy(self)
        taken.cache = self.cache.take(rows)
        return taken

    def spread(self, copies: int) -> None:
        """Copy the rows of the cache."""
        self.cache.spread(copies)

    def add(self, other: Decoding, rows: Sequence[int], copies: int) -> None:
        """Add rows of the other cache."""
        self.cache.add(other.cache, rows, copies)  # type: ignore[arg-type] # both are of the same network


class Translating:
    """A decoder with its cache, and the encoder's output that all its rows look at; copies share it."""

    def __init__(self, network: EncoderDecoder, sources: Tokens) -> None:
        self.network, self.device = network, device_of(network)
        self.cache = network.new_cache()
        tokens, rows = packed(sources, self.device)
        self.source = network.encode(tokens, rows=rows)

    def read(self, new: Tokens) -> Logits:
        """Read the new tokens of the targets."""
        tokens, rows = packed(new, self.device)
        output = self.network(self.source, tokens, target_rows=rows, cache=self.cache, scored=Scored.LAST)
        if self.source.hidden is not None:
            self.source = self.source.let_go()
        return _said(output)

    def keep(self, order: Sequence[int]) -> None:
        """Keep these rows; those that share a source stay together."""
        self.cache.reorder(order)
        texts = [order[at] // self.source.copies for at in range(0, len(order), self.source.copies)]
        if texts != list(range(self.source.rows.batch)):
            self.source = self.source.keep(texts)

    def take(self, rows: Sequence[int]) -> Translating:
        """These rows and their sources."""
        taken = copy.copy(self)
        taken.cache, taken.source = self.cache.take(rows), self.source.keep(rows)
        return taken

    def spread(self, copies: int) -> None:
        """Copy the rows of the target."""
        self.cache.spread(copies)
        self.source = self.source.spread(copies)

    def add(self, other: Translating, rows: Sequence[int], copies: int) -> None:
        """Add other rows and their sources."""
        self.cache.add(other.cache, rows, copies)
        self.source = self.source.add(other.source.keep(rows).spread(copies))


class Rereading:
    """The definition: everything is read again for every token. Needed where later tokens change what earlier ones
    mean (XLNet looks both ways), and what the others must agree with.
    """

    def __init__(self, network: Writer, sources: Tokens | None = None) -> None:
        self.network, self.device = network, device_of(network)
        self.sources = [list(source) for source in sources or ()]
        self.rows: list[list[int]] = []

    def read(self, new: Tokens) -> Logits:
        """Read everything again, and what is new."""
        before = self.rows or [[] for _ in new]
        self.rows = [[*old, *tokens] for old, tokens in zip(before, new, strict=True)]
        if isinstance(self.network, TwoStream):
            return self._guess(self.network)
        tokens, rows = packed(self.rows, self.device)
        if isinstance(self.network, DecoderOnly):
            return _said(self.network(tokens, rows=rows, scored=Scored.LAST))
        sources, source_rows = packed(self.sources, self.device)
        return _said(self.network(sources, tokens, rows=source_rows, target_rows=rows, scored=Scored.LAST))

    def _guess(self, network: TwoStream) -> Logits:
        """Guess a token that nothing has seen, behind every row."""
        tokens, rows = packed([[*row, 0] for row in self.rows], self.device)
        seen = torch.ones(rows.batch, rows.longest, rows.longest, dtype=torch.bool, device=tokens.device)
        for row, length in enumerate(rows.lengths):
            seen[row, :, length - 1] = False
        return _said(network(tokens, Explicit(seen), rows=rows, guess=True, scored=Scored.LAST))

    def keep(self, order: Sequence[int]) -> None:
        """Keep these rows."""
        self.rows = [list(self.rows[row]) for row in order]
        self.sources = [self.sources[row] for row in order] if self.sources else []

    def take(self, rows: Sequence[int]) -> Rereading:
        """These rows."""
        taken = copy.copy(self)
        taken.keep(rows)
        return taken

    def spread(self, copies: int) -> None:
        """Copy the rows."""
        self.keep([row for row in range(len(self.rows)) for _ in range(copies)])

    def add(self, other: Rereading, rows: Sequence[int], copies: int) -> None:
        """Add other rows."""
        new = other.take(rows)
        new.spread(copies)
        self.rows += new.rows
        self.sources += new.sources


def packed(rows: Tokens, device: torch.device) -> tuple[Int[Tensor, " tokens"], Rows]:
    """Rows of tokens side by side."""
    return numbers(chain.from_iterable(rows), device), Rows.of([len(row) for row in rows], device)


def device_of(network: Writer) -> torch.device:
    """Where a network is."""
    return next(chain(network.parameters(), network.buffers())).device


def _said(output: Output) -> Logits:
    assert output.logits is not None
    half = output.logits.dtype in (torch.float16, torch.bfloat16)
    return output.logits.float() if half else output.logits
