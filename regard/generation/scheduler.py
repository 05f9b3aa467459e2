"""Continuous batching: requests join the running batch, are decoded token by token, and leave it when finished.

    waiting, by length      prefilled           running                       finished
    [ . . . . . . . . ]  ->  [ the          ]    [ the cat sat on .     ]  ->  results, in the order of the inputs
                             [ it           ] -> [ a dog                ]

The search strategy defines a step; the scheduler only decides which requests share a batch. This changes no output
(`tests/promises`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs, check_generative, prepare_inputs
from regard.generation.result import DecodingResult
from regard.generation.running_batch import Request, RunningBatch, StreamEvent
from regard.generation.sequence import TokenSequence

BUFFER_SIZE = 512
"""Number of inputs that are read ahead and sorted by length."""


@dataclass(frozen=True)
class BatchSize:
    """The maximum size of the running batch, in sequences and in tokens.

    The prefilled requests that wait for a slot may take up as much again; they have one sequence each.
    """

    sequences: int = 16
    """Maximum number of sequences; a beam search needs `beam` of them for each input."""
    tokens: int | None = None
    """Maximum number of tokens: sources, prompts and the maximum of new tokens."""

    def __post_init__(self) -> None:
        if self.sequences < 1 or (self.tokens is not None and self.tokens < 1):
            raise ValueError(
                f"batch size must be at least 1 sequence and 1 token, found {self.sequences} and {self.tokens}"
            )

    def fits(self, sequences: int, tokens: int) -> bool:
        """Return whether a batch of this size is allowed."""
        return sequences <= self.sequences and (self.tokens is None or tokens <= self.tokens)


DEFAULT_BATCH_SIZE = BatchSize()


class Scheduler:
    """Reads inputs, forms batches of requests and decodes them."""

    def __init__(
        self,
        network: object,
        inputs: Iterable[Inputs],
        options: DecodingOptions,
        batch_size: BatchSize,
        buffer_size: int,
    ) -> None:
        self.network, self.options = check_generative(network), options
        self.batch_size, self.buffer_size = batch_size, buffer_size
        for address in options.capture:
            if not address.startswith("decoder."):
                raise ValueError(f"only decoder attention can be captured during generation, found {address!r}")
        self.inputs: Iterator[tuple[int, Inputs]] = enumerate(inputs)
        self.waiting: list[Request] = []
        self.oldest_index = 0
        """The smallest input index of the last buffer."""
        self.batch = RunningBatch(self.network, options)
        self.error: Exception | None = None
        """The error at which the inputs ended. It is raised when all inputs before it are finished."""

    def steps(self) -> Iterator[list[Request]]:
        """Decode until all inputs are finished; after each step, yield the requests that it finished."""
        batch = self.batch
        while True:
            self._fill_buffer()
            if self.waiting and not batch.prefilled and self._count_fitting(self.waiting[-1:], batch.running):
                count = self._count_fitting(reversed(self.waiting), ())
                requests = self.waiting[-count:]
                del self.waiting[-count:]
                yield batch.prefill(requests)
            elif count := self._count_fitting(reversed(batch.prefilled), batch.running):
                batch.join(count)
            elif not batch.running:
                if self.error is not None:
                    raise self.error
                return
            else:
                yield batch.step()

    def _fill_buffer(self) -> None:
        """Read and sort the next `buffer_size` inputs, once no input of the current buffer waits and all
        earlier buffers are finished.

        So at most two buffers are in memory, however long one input takes. With a buffer size of 1, each input is
        finished before the next is read, as interactive use requires.
        """
        if (
            self.waiting
            or (self.buffer_size <= 1 and self.batch.requests)
            or any(request.prepared.index < self.oldest_index for request in self.batch.requests)
        ):
            return
        try:
            for index, inputs in islice(self.inputs, max(self.buffer_size, 1)):
                self._add(index, inputs)
        except (ValueError, OSError) as error:
            self.error, self.inputs = error, iter(())
        if self.waiting:
            self.oldest_index = min(request.prepared.index for request in self.waiting)
        # Requests are taken from the end of the list, so the longest come first.
        self.waiting.sort(key=lambda request: request.max_total_tokens - request.prepared.max_new_tokens)

    def _add(self, index: int, inputs: Inputs) -> None:
        """Check an input, and add the requests of its samples."""
        prepared = prepare_inputs(self.network, index, inputs, self.options.max_new_tokens, self.options.overlong_input)
        self.options.check_inputs(prepared)
        search, prompt, source = self.options.search, prepared.inputs.prompt, prepared.inputs.source
        for sample_index in range(search.num_samples):
            sequence = TokenSequence(prompt, len(prompt), prepared.max_new_tokens)
            seed_key = f"{sample_index} {list(source or ())} {list(prompt)}"
            self.waiting.append(Request(prepared, sample_index, search.init_state(sequence, seed_key)))

    def _count_fitting(self, requests: Iterable[Request], running: Sequence[Request]) -> int:
        """Count the first requests that fit into a batch with the running ones; an empty batch takes at least one."""
        beam, count = self.options.search.beam, 0
        sequences, tokens = len(running) * beam, sum(request.max_total_tokens for request in running) * beam
        for request in requests:
            sequences, tokens = sequences + beam, tokens + request.max_total_tokens * beam
            if sequences > beam and not self.batch_size.fits(sequences, tokens):
                break
            count += 1
        return count


def generate(
    network: object,
    inputs: Iterable[Inputs],
    options: DecodingOptions,
    *,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    buffer_size: int = BUFFER_SIZE,
) -> Iterator[DecodingResult]:
    """Generate an output for every input; results come in the order of the inputs, as soon as they are ready.

        results = generate(
            network, [Inputs(prompt=[1, 15, 7])], DecodingOptions(search=BeamSearch(beam=4), eos_token_ids=[2])
        )

    Inputs are read `buffer_size` at a time, so they may be an endless iterator, and decoded in batches of `batch_size`.
    """
    return _ordered_results(Scheduler(network, inputs, options, batch_size, buffer_size))


def stream(
    network: object,
    inputs: Iterable[Inputs],
    options: DecodingOptions,
    *,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    buffer_size: int = 1,
) -> Iterator[StreamEvent | DecodingResult]:
    """Yield tokens as soon as they can no longer change, and the result of each input when it is finished.

    In a beam search, these tokens are the common prefix of all active and finished hypotheses.
    """
    return _stream_events(Scheduler(network, inputs, options, batch_size, buffer_size))


def _stream_events(scheduler: Scheduler) -> Iterator[StreamEvent | DecodingResult]:
    collector = _SampleCollector(scheduler.options.search.num_samples)
    for finished in scheduler.steps():
        for request in [*scheduler.batch.requests, *finished]:
            if event := request.next_event():
                yield event
        yield from filter(None, map(collector.add, finished))


def _ordered_results(scheduler: Scheduler) -> Iterator[DecodingResult]:
    collector = _SampleCollector(scheduler.options.search.num_samples)
    results, next_index = dict[int, DecodingResult](), 0
    for finished in scheduler.steps():
        results.update((result.index, result) for result in map(collector.add, finished) if result)
        while next_index in results:
            yield results.pop(next_index)
            next_index += 1


class _SampleCollector:
    """Collects the samples of each input until all of them are finished."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples
        self.samples: dict[int, list[Request]] = {}

    def add(self, request: Request) -> DecodingResult | None:
        """Add a finished sample; return the result of its input if it was the last one."""
        index = request.prepared.index
        samples = self.samples.setdefault(index, [])
        samples.append(request)
        if len(samples) < self.num_samples:
            return None
        del self.samples[index]
        samples.sort(key=lambda sample: sample.sample_index)
        return DecodingResult(
            index=index,
            hypotheses=tuple(hypothesis for sample in samples for hypothesis in sample.state.hypotheses()),
            max_new_tokens=request.prepared.max_new_tokens,
            truncated=request.prepared.truncated,
        )
