"""The requests that are being decoded: prefill, decode steps, joining and leaving (continuous batching)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import PreparedInputs
from regard.generation.logits_processors import Logits
from regard.generation.search import SearchState
from regard.generation.sequence import TokenSequence
from regard.transformer.activation_capture import capture
from regard.transformer.decoder_state import DecoderState
from regard.transformer.interface import GenerativeNetwork


@dataclass(frozen=True)
class StreamEvent:
    """New tokens of one input that can no longer change."""

    index: int
    """Index of the input, from 0."""
    sample_index: int
    """Index of the sample, from 0, if several samples are drawn for each input."""
    tokens: tuple[int, ...]


@dataclass(eq=False)
class Request:
    """One input, or one sample of it, that is waiting, being decoded, or finished."""

    prepared: PreparedInputs
    sample_index: int
    state: SearchState
    num_streamed: int = 0
    """Number of new tokens that were already sent as stream events."""

    @cached_property
    def max_total_tokens(self) -> int:
        """The maximum number of tokens: source, prompt and new tokens."""
        inputs = self.prepared.inputs
        return len(inputs.source or ()) + len(inputs.prompt) + self.prepared.max_new_tokens

    def next_event(self) -> StreamEvent | None:
        """Return the tokens that became stable since the last call, if any."""
        tokens = self.state.stable_prefix()[self.num_streamed :]
        self.num_streamed += len(tokens)
        return StreamEvent(self.prepared.index, self.sample_index, tuple(tokens)) if tokens else None


class RunningBatch:
    """The requests that are decoded in one batch, with their decoder state.

    Further requests are prefilled, many in one forward pass, and wait until a slot of the batch becomes free.
    """

    def __init__(self, network: GenerativeNetwork, options: DecodingOptions) -> None:
        self.network, self.options = network, options
        self.search, self.step_options = options.search, options.step_options()
        self.running: list[Request] = []
        self.state: DecoderState | None = None
        self.prefilled: list[Request] = []
        self.prefilled_state: DecoderState | None = None

    @property
    def requests(self) -> list[Request]:
        """The running and the prefilled requests."""
        return self.running + self.prefilled

    @torch.inference_mode()
    def prefill(self, requests: Sequence[Request]) -> list[Request]:
        """Read the prompts of new requests and generate their first token; return the requests that are finished."""
        assert not self.prefilled
        sources = [request.prepared.inputs.source or () for request in requests]
        state = self.network.new_decoder_state(sources)
        sequences = [request.state.sequences[0] for request in requests]
        logits = self._forward(state, [sequence.tokens for sequence in sequences], sequences)
        self.search.step([request.state for request in requests], logits, self.step_options)
        unfinished = [index for index, request in enumerate(requests) if not request.state.is_done]
        if unfinished and len(unfinished) < len(requests):
            state.reorder(unfinished)
        self.prefilled, self.prefilled_state = [requests[index] for index in unfinished], state if unfinished else None
        return [request for request in requests if request.state.is_done]

    @torch.inference_mode()
    def join(self, count: int) -> None:
        """Move the last `count` prefilled requests into the running batch."""
        assert self.prefilled_state is not None
        waiting = len(self.prefilled) - count
        joining, beam = range(waiting, len(self.prefilled)), self.search.beam
        if self.state is not None:
            self.state.append(self.prefilled_state, joining, beam)
        else:
            self.state = self.prefilled_state.select(joining) if waiting else self.prefilled_state
            if beam > 1:
                self.state.repeat_interleave(beam)
        if waiting:
            self.prefilled_state.reorder(range(waiting))
        else:
            self.prefilled_state = None
        self.running += self.prefilled[waiting:]
        del self.prefilled[waiting:]

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Run one decode step: one more token for every running request. Remove and return the finished requests."""
        assert self.state is not None
        sequences = [sequence for request in self.running for sequence in request.state.sequences]
        logits = self._forward(self.state, [(sequence.last_token,) for sequence in sequences], sequences)
        self.search.step([request.state for request in self.running], logits, self.step_options)
        finished = [request for request in self.running if request.state.is_done]
        slots, beam = self._unfinished_slots(), self.search.beam
        order = [slot * beam + parent for slot in slots for parent in self.running[slot].state.parents]
        self.running = [self.running[slot] for slot in slots]
        if not order:
            self.state = None
        elif order != list(range(len(sequences))):
            self.state.reorder(order)
        return finished

    def _unfinished_slots(self) -> list[int]:
        """Return the slots of the unfinished requests; the last ones replace the finished, so that few rows move."""
        unfinished = [slot for slot, request in enumerate(self.running) if not request.state.is_done]
        movers = [slot for slot in unfinished if slot >= len(unfinished)]
        return [movers.pop() if self.running[slot].state.is_done else slot for slot in range(len(unfinished))]

    def _forward(
        self, state: DecoderState, new_tokens: Sequence[Sequence[int]], sequences: Sequence[TokenSequence]
    ) -> Logits:
        if not self.options.capture:
            return state.step(new_tokens)
        with capture(self.network, *self.options.capture) as weights:
            logits = state.step(new_tokens)
        for row, sequence in enumerate(sequences):
            sequence.attention += ({address: weights[address][row][:, -1] for address in self.options.capture},)
        return logits
