"""Run an encoder on rows of tokens: what classify, tag, answer, fill and embed have in common.

    inputs ──buffers of 512──> rows ──sorted by length, packed by tokens──> network ──> outputs in the order of the rows

A row is a text, a pair of texts, or a window of a long text. A task makes rows from its inputs and results from the
outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.data.encoders.row_slicing import drop_longest_first, take, token_positions, window
from regard.data.length_policy import SlidingWindow
from regard.tasks.inputs import TextPair, check_iterable
from regard.tokenization.tokenizer import Encoding, Tokenizer
from regard.transformer.batch_layout import BatchLayout, int_tensor

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class TokenRow:
    """One sequence that a network reads."""

    tokens: list[int]
    segments: list[int]
    """The segment of each token, for networks that distinguish them."""

    @classmethod
    def of(cls, encoding: Encoding, positions: list[int]) -> TokenRow:
        """Return a row of the tokens at these positions of an encoding."""
        return cls(take(encoding.ids, positions), take(encoding.segments, positions))


@dataclass(frozen=True)
class PackedRows:
    """A batch of rows without padding, as a network reads it."""

    tokens: Tensor
    layout: BatchLayout
    keywords: dict[str, Any]
    """`segments`, if the network distinguishes them."""

    def forward(self, network: Any) -> Any:
        """Return the output of a network."""
        return network(self.tokens, layout=self.layout, **self.keywords)

    def split(self, values: Tensor) -> list[Tensor]:
        """Split the values of all tokens into those of each row."""
        return list(torch.split(values, list(self.layout.lengths)))


class EncoderRunner:
    """Runs a network on rows of tokens, in batches of rows of similar length."""

    def __init__(self, network: Any, batch_tokens: int) -> None:
        self.network, self.batch_tokens = network, batch_tokens
        self.device = next(network.parameters()).device

    @torch.inference_mode()
    def map(self, rows: Sequence[TokenRow], compute: Callable[[PackedRows], Sequence[OutputT]]) -> list[OutputT]:
        """Call `compute` on batches of rows; return its outputs, one for each row, in the order of the rows."""
        lengths = [len(row.tokens) for row in rows]
        if 0 in lengths:
            raise ValueError("a text has no tokens: the network needs at least one")
        order = sorted(range(len(rows)), key=lengths.__getitem__)
        outputs: dict[int, OutputT] = {}
        for batch in token_batches(order, lengths, self.batch_tokens):
            outputs.update(zip(batch, compute(self._pack([rows[index] for index in batch])), strict=True))
        return [outputs[index] for index in range(len(rows))]

    def sequence_logits(self, rows: Sequence[TokenRow]) -> list[Tensor]:
        """Return the logits of each row, for a head that pools: a vector of float64 on the CPU."""
        return self.map(rows, lambda batch: list(_to_double(batch.forward(self.network).logits)))

    def token_logits(self, rows: Sequence[TokenRow]) -> list[Tensor]:
        """Return the logits of each token of each row: tokens × labels, of float64 on the CPU."""
        return self.map(rows, lambda batch: batch.split(_to_double(batch.forward(self.network).logits)))

    def _pack(self, rows: Sequence[TokenRow]) -> PackedRows:
        layout = BatchLayout.of([len(row.tokens) for row in rows], self.device)
        tokens = int_tensor((token for row in rows for token in row.tokens), self.device)
        if not self.network.reads_segments:
            return PackedRows(tokens, layout, {})
        segments = int_tensor((segment for row in rows for segment in row.segments), self.device)
        return PackedRows(tokens, layout, {"segments": segments})


def _to_double(logits: Tensor) -> Tensor:
    return logits.double().cpu()


def token_batches(order: Iterable[int], lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Split indices into batches of at most `batch_tokens` tokens, but at least one sequence."""
    batch: list[int] = []
    total = 0
    for index in order:
        if batch and total + lengths[index] > batch_tokens:
            yield batch
            batch, total = [], 0
        batch.append(index)
        total += lengths[index]
    if batch:
        yield batch


def process_in_buffers(
    inputs: Iterable[InputT], buffer_size: int, process: Callable[[list[InputT]], Iterable[ResultT]]
) -> Iterator[ResultT]:
    """Read `buffer_size` inputs at a time and yield their results: memory does not grow with the number of inputs."""
    check_iterable(inputs)
    remaining = iter(inputs)
    while buffer := list(islice(remaining, buffer_size)):
        yield from process(buffer)


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[str | TextPair], *, parse_special_tokens: bool = False
) -> list[Encoding]:
    """Encode texts and pairs of texts, which have different special tokens."""
    singles = [text for text in texts if isinstance(text, str)]
    pairs = [text for text in texts if not isinstance(text, str)]
    encoded_texts = iter(tokenizer.encode_batch(singles, parse_special_tokens=parse_special_tokens))
    encoded_pairs = iter(
        tokenizer.encode_batch(
            [first for first, _ in pairs], [second for _, second in pairs], parse_special_tokens=parse_special_tokens
        )
    )
    return [next(encoded_texts if isinstance(text, str) else encoded_pairs) for text in texts]


def max_row_length(network: Any, tokenizer: Tokenizer) -> int | None:
    """Return the maximum number of tokens of a row: that of the network, else of its tokenizer; None for no limit."""
    _, limits = network.limits
    length: int | None = limits.max_positions or limits.context_length or tokenizer.model_max_length
    return length


def truncated_positions(encoding: Encoding, max_length: int | None) -> tuple[list[int], int]:
    """Return the positions that fit the network, and the number of the others. Of a pair, the longer text is cut."""
    excess = 0 if max_length is None else max(0, len(encoding) - max_length)
    return drop_longest_first(encoding, excess), excess


def split_to_windows(
    encoding: Encoding, sequence_id: int, max_length: int | None, overlap: float = 0.5
) -> list[list[int]]:
    """Return the positions of each window of one text of an encoding; each window has all other tokens too.

    Neighbouring windows share this part of their tokens, so that each word has context on both sides in one of them. A
    text that fits is one window.
    """
    if max_length is None or len(encoding) <= max_length:
        return [list(range(len(encoding)))]
    text = token_positions(encoding, sequence_id)
    capacity = max_length - (len(encoding) - len(text))
    if capacity < 1:
        raise ValueError(
            f"the network reads at most {max_length} tokens, and {len(encoding) - len(text)} of them are needed "
            "besides the text that is split into windows: shorten the question or the first text"
        )
    stride = capacity - int(capacity * overlap)
    return [window(encoding, text, start, end) for start, end in SlidingWindow(capacity, stride).spans(len(text))]


def distance_to_edge(position: int, length: int) -> int:
    """Return how far a token is from the nearest edge of its window: the window with the most context decides."""
    return min(position, length - 1 - position)
