"""The `Classifier`: the labels of texts, with a network that has a classification head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from regard.data.encoders.row_slicing import drop_longest_first, take
from regard.tasks.classify import Classification, ClassifyOptions
from regard.tasks.inputs import TextPair, check_iterable
from regard.tokenization.tokenizer import Encoding, Tokenizer
from regard.training.task import BUFFER_SIZE
from regard.transformer.batch_layout import BatchLayout, int_tensor


class Classifier:
    """A network with a classification head, its tokenizer and its labels, ready to classify."""

    def __init__(self, network: Any, tokenizer: Tokenizer, labels: Sequence[str], options: ClassifyOptions) -> None:
        self.network, self.tokenizer, self.options = network, tokenizer, options
        self.labels = tuple(labels)
        self.device = next(network.parameters()).device
        _, limits = network.limits
        self.max_length = limits.max_positions or limits.context_length or tokenizer.model_max_length

    def run(self, inputs: Iterable[str | TextPair], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Classification]:
        """Classify every text or pair; results come in the order of the inputs.

        `buffer_size` inputs are read at a time and sorted by length, so that a batch has sequences of similar length.
        """
        check_iterable(inputs)
        remaining = iter(inputs)
        while buffer := list(islice(remaining, buffer_size)):
            yield from self._classify(buffer)

    def _classify(self, texts: Sequence[str | TextPair]) -> list[Classification]:
        rows = [self._row(encoding) for encoding in self._encode(texts)]
        order = sorted(range(len(rows)), key=lambda index: len(rows[index][0]))
        results: dict[int, Classification] = {}
        for batch in self._batches(order, [len(tokens) for tokens, _, _ in rows]):
            tokens = [rows[index][0] for index in batch]
            segments = [rows[index][1] for index in batch]
            for index, probabilities in zip(batch, self._probabilities(tokens, segments), strict=True):
                results[index] = self._classification(probabilities, rows[index][2])
        return [results[index] for index in range(len(rows))]

    def _encode(self, texts: Sequence[str | TextPair]) -> Iterator[Encoding]:
        """Encode the texts. Single texts and pairs are encoded separately, because a pair has other special tokens."""
        singles = iter(self.tokenizer.encode_batch([text for text in texts if isinstance(text, str)]))
        pairs = [text for text in texts if not isinstance(text, str)]
        encoded = iter(self.tokenizer.encode_batch([first for first, _ in pairs], [second for _, second in pairs]))
        for text in texts:
            yield next(singles if isinstance(text, str) else encoded)

    def _row(self, encoding: Encoding) -> tuple[list[int], list[int], int]:
        """Return tokens, segments and the number of truncated tokens. Of a pair, the longer text is truncated."""
        if not encoding.ids:
            raise ValueError("a text has no tokens: the network needs at least one")
        excess = 0 if self.max_length is None else max(0, len(encoding) - self.max_length)
        if not excess:
            return encoding.ids, encoding.segments, 0
        positions = drop_longest_first(encoding, excess)
        return take(encoding.ids, positions), take(encoding.segments, positions), excess

    def _batches(self, order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
        """Split the order into batches of at most `batch_tokens` tokens, but at least one sequence."""
        batch: list[int] = []
        total = 0
        for index in order:
            if batch and total + lengths[index] > self.options.batch_tokens:
                yield batch
                batch, total = [], 0
            batch.append(index)
            total += lengths[index]
        if batch:
            yield batch

    @torch.inference_mode()
    def _probabilities(self, tokens: Sequence[list[int]], segments: Sequence[list[int]]) -> list[list[float]]:
        layout = BatchLayout.of([len(row) for row in tokens], self.device)
        ids = int_tensor((token for row in tokens for token in row), self.device)
        keywords: dict[str, Any] = {}
        if self.network.reads_segments:
            keywords["segments"] = int_tensor((segment for row in segments for segment in row), self.device)
        logits = self.network(ids, layout=layout, **keywords).logits
        rows: list[list[float]] = logits.float().softmax(dim=-1).tolist()
        return rows

    def _classification(self, probabilities: Sequence[float], truncated: int) -> Classification:
        labels = self.labels or tuple(f"LABEL_{index}" for index in range(len(probabilities)))
        if len(labels) != len(probabilities):
            raise ValueError(f"the model has {len(labels)} label names for {len(probabilities)} logits")
        ranked = sorted(zip(labels, probabilities, strict=True), key=lambda pair: -pair[1])
        return Classification(label=ranked[0][0], scores=dict(ranked[: self.options.top_k]), truncated=truncated)
