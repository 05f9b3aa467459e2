"""The `Classifier`: the labels of texts, with a network that has a classification head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from regard.tasks.classify import Classification, ClassifyOptions
from regard.tasks.encoder_runner import (
    EncoderRunner,
    TokenRow,
    encode_texts,
    max_row_length,
    process_in_buffers,
    truncated_positions,
)
from regard.tasks.inputs import TextPair
from regard.tokenization.tokenizer import Tokenizer
from regard.training.task import BUFFER_SIZE


class Classifier:
    """A network with a classification head, its tokenizer and its labels, ready to classify."""

    def __init__(self, network: Any, tokenizer: Tokenizer, labels: Sequence[str], options: ClassifyOptions) -> None:
        self.runner = EncoderRunner(network, options.batch_tokens)
        self.tokenizer, self.labels, self.options = tokenizer, tuple(labels), options
        self.max_length = max_row_length(network, tokenizer)

    def run(self, inputs: Iterable[str | TextPair], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Classification]:
        """Classify every text or pair; results come in the order of the inputs.

        `buffer_size` inputs are read at a time and sorted by length, so that a batch has sequences of similar length.
        """
        return process_in_buffers(inputs, buffer_size, self._classify)

    def _classify(self, texts: Sequence[str | TextPair]) -> Iterator[Classification]:
        encodings = encode_texts(self.tokenizer, texts)
        kept = [truncated_positions(encoding, self.max_length) for encoding in encodings]
        rows = [TokenRow.of(encoding, positions) for encoding, (positions, _) in zip(encodings, kept, strict=True)]
        for logits, (_, truncated) in zip(self.runner.sequence_logits(rows), kept, strict=True):
            yield self._classification(logits.softmax(dim=-1).tolist(), truncated)

    def _classification(self, probabilities: Sequence[float], truncated: int) -> Classification:
        labels = self.labels or tuple(f"LABEL_{index}" for index in range(len(probabilities)))
        if len(labels) != len(probabilities):
            raise ValueError(f"the model has {len(labels)} label names for {len(probabilities)} logits")
        ranked = sorted(zip(labels, probabilities, strict=True), key=lambda pair: -pair[1])
        return Classification(label=ranked[0][0], scores=dict(ranked[: self.options.top_k]), truncated=truncated)
