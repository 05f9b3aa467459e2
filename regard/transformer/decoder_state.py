"""The decoder state of a batch of sequences (KV cache and encoder output), and the logits of the next token.

All states have the same interface: `step` reads the new tokens of every sequence, `reorder` keeps some sequences in a
given order, `select` copies some of them into a new state, `repeat_interleave` repeats each of them, and `append` adds
sequences of another state. A network makes its own (`new_decoder_state`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.transformer.batch_layout import BatchLayout, int_tensor
from regard.transformer.head_base import LogitsAt
from regard.transformer.interface import Reads
from regard.transformer.mask import Explicit

if TYPE_CHECKING:
    from regard.transformer.network import DecoderOnly, EncoderDecoder

TokenBatch = Sequence[Sequence[int]]
Logits = Float[Tensor, "batch vocabulary"]
AnyDecoderState = TypeVar("AnyDecoderState", bound="DecoderState")
AnyUncachedState = TypeVar("AnyUncachedState", bound="UncachedState")


@runtime_checkable
class DecoderState(Protocol):
    """The sequences that a network has read so far."""

    def step(self, new_tokens: TokenBatch) -> Logits:
        """Read the new tokens of each sequence; return the logits of the token after them."""

    def reorder(self, order: Sequence[int]) -> None:
        """Keep the sequences of these indices, in this order; a repeated index copies the sequence."""

    def select(self: AnyDecoderState, indices: Sequence[int]) -> AnyDecoderState:
        """Return a new state of these sequences; this one does not change."""

    def repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence, the copies next to each other, as `torch.repeat_interleave` does."""

    def append(self: AnyDecoderState, other: AnyDecoderState, indices: Sequence[int], repeats: int) -> None:
        """Append these sequences of another state of the same network, each repeated, the copies next to each other."""


class DecoderOnlyState:
    """The KV cache of a decoder, or its segment memory."""

    def __init__(self, network: DecoderOnly) -> None:
        self.network, self.device = network, device_of(network)
        self.cache = network.new_cache()

    def step(self, new_tokens: TokenBatch) -> Logits:
        """Read the new tokens and extend the cache."""
        tokens, layout = pack_tokens(new_tokens, self.device)
        return _float_logits(self.network(tokens, layout=layout, cache=self.cache, logits_at=LogitsAt.LAST))

    def reorder(self, order: Sequence[int]) -> None:
        """Reorder the cache."""
        self.cache.reorder(order)

    def select(self, indices: Sequence[int]) -> DecoderOnlyState:
        """Copy rows of the cache into a new state."""
        selected = copy.copy(self)
        selected.cache = self.cache.take(indices)
        return selected

    def repeat_interleave(self, repeats: int) -> None:
        """Repeat each row of the cache."""
        self.cache.repeat_interleave(repeats)

    def append(self, other: DecoderOnlyState, indices: Sequence[int], repeats: int) -> None:
        """Append rows of the other cache."""
        self.cache.append_rows(other.cache, indices, repeats)  # type: ignore[arg-type] # both are of the same network


class EncoderDecoderState:
    """The KV cache of a decoder and the encoder output that it attends to; the beams of one input share the latter."""

    def __init__(self, network: EncoderDecoder, sources: TokenBatch) -> None:
        self.network, self.device = network, device_of(network)
        self.cache = network.new_cache()
        tokens, layout = pack_tokens(sources, self.device)
        self.source = network.encode(tokens, layout=layout)

    def step(self, new_tokens: TokenBatch) -> Logits:
        """Read the new target tokens and extend the cache."""
        tokens, layout = pack_tokens(new_tokens, self.device)
        output = self.network(self.source, tokens, target_layout=layout, cache=self.cache, logits_at=LogitsAt.LAST)
        if self.source.hidden is not None:
            self.source = self.source.without_hidden()
        return _float_logits(output)

    def reorder(self, order: Sequence[int]) -> None:
        """Reorder the cache and the sources; sequences that share a source stay next to each other."""
        self.cache.reorder(order)
        source_order = [order[index] // self.source.copies for index in range(0, len(order), self.source.copies)]
        if source_order != list(range(self.source.layout.batch_size)):
            self.source = self.source.reorder(source_order)

    def select(self, indices: Sequence[int]) -> EncoderDecoderState:
        """Copy rows of the cache and their sources into a new state."""
        selected = copy.copy(self)
        selected.cache, selected.source = self.cache.take(indices), self.source.reorder(indices)
        return selected

    def repeat_interleave(self, repeats: int) -> None:
        """Repeat each row of the cache; the copies share their source."""
        self.cache.repeat_interleave(repeats)
        self.source = self.source.repeat_interleave(repeats)

    def append(self, other: EncoderDecoderState, indices: Sequence[int], repeats: int) -> None:
        """Append rows of the other cache and their sources."""
        self.cache.append_rows(other.cache, indices, repeats)
        self.source = self.source.append_rows(other.source.reorder(indices).repeat_interleave(repeats))


class UncachedState:
    """The reference implementation: every step reads all tokens again. The tests compare the cached states with it."""

    def __init__(self, network: Any, sources: TokenBatch | None = None) -> None:
        self.network, self.device = network, device_of(network)
        self.sources = [list(source) for source in sources or ()]
        self.sequences: list[list[int]] = []

    def step(self, new_tokens: TokenBatch) -> Logits:
        """Read all tokens again, followed by the new ones."""
        previous = self.sequences or [[] for _ in new_tokens]
        self.sequences = [[*old, *new] for old, new in zip(previous, new_tokens, strict=True)]
        return self._predict_next()

    def _predict_next(self) -> Logits:
        tokens, layout = pack_tokens(self.sequences, self.device)
        if self.network.reads is Reads.TOKENS:
            return _float_logits(self.network(tokens, layout=layout, logits_at=LogitsAt.LAST))
        sources, source_layout = pack_tokens(self.sources, self.device)
        return _float_logits(
            self.network(sources, tokens, layout=source_layout, target_layout=layout, logits_at=LogitsAt.LAST)
        )

    def reorder(self, order: Sequence[int]) -> None:
        """Reorder the tokens and the sources."""
        self.sequences = [list(self.sequences[index]) for index in order]
        self.sources = [self.sources[index] for index in order] if self.sources else []

    def select(self: AnyUncachedState, indices: Sequence[int]) -> AnyUncachedState:
        """Copy these sequences into a new state."""
        selected = copy.copy(self)
        selected.reorder(indices)
        return selected

    def repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence."""
        self.reorder([index for index in range(len(self.sequences)) for _ in range(repeats)])

    def append(self, other: UncachedState, indices: Sequence[int], repeats: int) -> None:
        """Append sequences of the other state."""
        new = other.select(indices)
        new.repeat_interleave(repeats)
        self.sequences += new.sequences
        self.sources += new.sources


class TwoStreamState(UncachedState):
    """The tokens that XLNet has read. It has no cache: its bidirectional attention changes the hidden states of earlier
    tokens."""

    def _predict_next(self) -> Logits:
        """Append a placeholder that no token attends to, and predict it with the query stream."""
        tokens, layout = pack_tokens([[*sequence, 0] for sequence in self.sequences], self.device)
        visible = torch.ones(layout.batch_size, layout.longest, layout.longest, dtype=torch.bool, device=tokens.device)
        for row, length in enumerate(layout.lengths):
            visible[row, :, length - 1] = False
        return _float_logits(
            self.network(tokens, Explicit(visible), layout=layout, query_stream=True, logits_at=LogitsAt.LAST)
        )


def pack_tokens(sequences: TokenBatch, device: torch.device) -> tuple[Int[Tensor, " tokens"], BatchLayout]:
    """Concatenate sequences into a packed batch; return its tokens and its layout."""
    lengths = [len(sequence) for sequence in sequences]
    return int_tensor(chain.from_iterable(sequences), device), BatchLayout.of(lengths, device)


def device_of(network: Any) -> torch.device:
    """Return the device of the network's weights."""
    device: torch.device = next(chain(network.parameters(), network.buffers())).device
    return device


def _float_logits(output: Any) -> Logits:
    """Return the logits, converted to float32 if they are in float16 or bfloat16."""
    logits: Tensor = output.logits
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
