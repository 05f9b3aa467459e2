"""The `Answerer`: the part of a context that answers a question, with a span head."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.checkpoint.model_folder import ModelInfo
from regard.data.encoders.questions import no_answer_position
from regard.tasks.answer import AnswerOptions, QuestionAnswer
from regard.tasks.encoder_runner import (
    EncoderRunner,
    PackedRows,
    TokenRow,
    encode_texts,
    max_row_length,
    process_in_buffers,
    split_to_windows,
)
from regard.tasks.inputs import TextPair
from regard.tasks.span_table import SpanTable
from regard.tokenization.tokenizer import Encoding, Tokenizer
from regard.training.task import BUFFER_SIZE
from regard.transformer.interface import Predicts

Span = tuple[float, int, int]
"""Score, first and last position in the row."""


@dataclass(frozen=True)
class RowSpans:
    """What a network predicts for one row: logits at each position, or a few spans with their scores."""

    no_answer: float
    """The score of no answer."""
    logits: Tensor | None = None
    """Start and end logits of each token."""
    spans: Sequence[Span] = ()
    """The spans that a span search found."""


class Answerer:
    """A network with a span head and its tokenizer, ready to answer questions."""

    def __init__(self, network: Any, tokenizer: Tokenizer, info: ModelInfo, options: AnswerOptions) -> None:
        self.runner = EncoderRunner(network, options.batch_tokens)
        self.network, self.tokenizer, self.options = network, tokenizer, options
        self.max_length = max_row_length(network, tokenizer)
        stored = info.get("no_answer_threshold")
        self.threshold = stored if options.no_answer_threshold is None else options.no_answer_threshold
        self.searches_spans = Predicts.LABEL in network.predicts
        """Whether the head searches spans and predicts whether there is an answer (XLNet)."""

    def run(self, inputs: Iterable[TextPair], *, buffer_size: int = BUFFER_SIZE) -> Iterator[QuestionAnswer]:
        """Answer every question about its context; results come in the order of the inputs.

        A context that is too long for the network is read in windows that overlap by half.
        """
        return process_in_buffers(inputs, buffer_size, self._answer)

    def _answer(self, inputs: Sequence[TextPair]) -> Iterator[QuestionAnswer]:
        encodings = encode_texts(self.tokenizer, inputs)
        windows = [split_to_windows(encoding, 1, self.max_length) for encoding in encodings]
        rows = [
            TokenRow.of(encoding, positions)
            for encoding, each in zip(encodings, windows, strict=True)
            for positions in each
        ]
        predictions = iter(self.runner.map(rows, self._search if self.searches_spans else self._logits))
        for (_, context), encoding, each in zip(inputs, encodings, windows, strict=True):
            table = SpanTable(sum(side == 1 for side in encoding.sequence_ids), self.options.max_answer_length)
            for positions in each:
                _add_row(table, next(predictions), positions, encoding)
            yield self._result(context, encoding, table, len(each))

    def _logits(self, batch: PackedRows) -> list[RowSpans]:
        logits_of_all = batch.forward(self.network).logits.double().cpu()
        rows = zip(batch.split(logits_of_all), batch.split(batch.tokens), strict=True)
        cls_token_id = self.tokenizer.special_ids.cls
        return [
            RowSpans(float(logits[no_answer_position(tokens.tolist(), cls_token_id)].sum()), logits)
            for logits, tokens in rows
        ]

    def _search(self, batch: PackedRows) -> list[RowSpans]:
        """Search spans as XLNet does: the best ends for each of the best starts, scored by log-probabilities."""
        output = batch.forward(self.network)
        found = self.network.head.search(output.hidden, batch.layout)
        no_answer = output.sequence_logits[:, 0].double().tolist()
        return [
            RowSpans(margin, spans=[(math.log(max(p, 1e-300)), first, last) for p, first, last in spans])
            for margin, spans in zip(no_answer, found, strict=True)
        ]

    def _result(self, context: str, encoding: Encoding, table: SpanTable, num_windows: int) -> QuestionAnswer:
        offsets = [
            span for span, side in zip(encoding.offsets, encoding.sequence_ids, strict=True) if side == 1
        ]  # of the tokens of the context
        may_have_none = self.threshold is not None
        normalizer = table.log_partition(may_have_none)
        spans = table.best_spans(self.options.n_best)
        answers = [_answer_of(context, offsets, span, normalizer) for span in spans]
        if not spans:
            return QuestionAnswer(text="", score=1.0, windows=num_windows)
        margin = table.no_answer - spans[0][0]
        if self.threshold is not None and margin > self.threshold:
            no_answer = QuestionAnswer(text="", score=math.exp(table.no_answer - normalizer))
            answers = [no_answer, *answers][: self.options.n_best]
        best, *alternatives = answers
        return replace(best, no_answer_margin=margin, windows=num_windows, alternatives=tuple(alternatives))


def _add_row(table: SpanTable, row: RowSpans, positions: Sequence[int], encoding: Encoding) -> None:
    """Add the spans of a window to the table of a context. `positions` are those of its tokens in the encoding."""
    inside = [place for place, position in enumerate(positions) if encoding.sequence_ids[position] == 1]
    if not inside:
        return
    first_token = positions[inside[0]] - encoding.sequence_ids.index(1)
    if row.logits is not None:
        start, end = row.logits[torch.tensor(inside)].unbind(dim=1)
        table.add_window(first_token, start, end, row.no_answer)
        return
    table.no_answer = min(table.no_answer, row.no_answer)
    for score, first, last in row.spans:
        if inside[0] <= first <= last <= inside[-1]:
            table.add_span(first_token + first - inside[0], first_token + last - inside[0], score)


def _answer_of(context: str, offsets: Sequence[tuple[int, int]], span: Span, normalizer: float) -> QuestionAnswer:
    """Return the answer of a span, without the white space that some tokens start with."""
    score, first, last = span
    start, end = offsets[first][0], offsets[last][1]
    text = context[start:end]
    start, text = start + len(text) - len(text.lstrip()), text.strip()
    return QuestionAnswer(text=text, start=start, end=start + len(text), score=math.exp(score - normalizer))
