"""The `Classifier`: the labels of texts, with a network that has a classification head."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.checkpoint.model_folder import ModelInfo
from regard.tasks.classify import Classification, ClassifyOptions
from regard.tasks.encoder_runner import (
    EncoderRunner,
    TokenRow,
    encode_texts,
    max_row_length,
    process_in_buffers,
    split_to_windows,
    truncated_positions,
)
from regard.tasks.inputs import TextPair
from regard.tasks.long_input import LongInput
from regard.tokenization.tokenizer import Encoding, Tokenizer
from regard.training.task import BUFFER_SIZE


class Problem(enum.StrEnum):
    """What the logits of a classification head are. The names in config.json are those of transformers."""

    SINGLE_LABEL = "single_label"
    """One label for each text."""
    MULTI_LABEL = "multi_label"
    """Any number of labels for each text, each with a probability of its own."""
    REGRESSION = "regression"
    """One number."""

    @classmethod
    def of(cls, info: ModelInfo, num_labels: int) -> Problem:
        """Return the problem that a model was trained for. A single label without more has a probability of its own."""
        return cls(info.get("problem", cls.MULTI_LABEL if num_labels == 1 else cls.SINGLE_LABEL))


class Classifier:
    """A network with a classification head, its tokenizer and its labels, ready to classify."""

    def __init__(
        self, network: Any, tokenizer: Tokenizer, labels: Sequence[str], info: ModelInfo, options: ClassifyOptions
    ) -> None:
        self.runner = EncoderRunner(network, options.batch_tokens)
        self.tokenizer, self.options = tokenizer, options
        self.problem, self.temperature = Problem.of(info, network.num_labels), info.get("temperature", 1.0)
        self.max_length = max_row_length(network, tokenizer)
        self.labels = tuple(labels) or tuple(f"LABEL_{index}" for index in range(network.num_labels))
        if len(self.labels) != network.num_labels:
            raise ValueError(f"the model has {len(self.labels)} label names for {network.num_labels} logits")

    def run(self, inputs: Iterable[str | TextPair], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Classification]:
        """Classify every text or pair; results come in the order of the inputs.

        `buffer_size` inputs are read at a time and sorted by length, so that a batch has sequences of similar length.
        """
        return process_in_buffers(inputs, buffer_size, self._classify)

    def _classify(self, texts: Sequence[str | TextPair]) -> Iterator[Classification]:
        encodings = encode_texts(self.tokenizer, texts)
        windows = [self._windows(encoding) for encoding in encodings]
        rows = [
            TokenRow.of(encoding, positions)
            for encoding, (each, _) in zip(encodings, windows, strict=True)
            for positions in each
        ]
        outputs = iter(self.runner.sequence_logits(rows))
        for each, truncated in windows:
            probabilities = torch.stack([self._activate(next(outputs)) for _ in each]).mean(dim=0)
            yield self._classification(probabilities.tolist(), truncated, len(each))

    def _windows(self, encoding: Encoding) -> tuple[list[list[int]], int]:
        """Return the positions of each window, and the number of truncated tokens."""
        if self.options.long is LongInput.FIRST:
            positions, truncated = truncated_positions(encoding, self.max_length)
            return [positions], truncated
        lengths = [encoding.sequence_ids.count(side) for side in (0, 1)]
        return split_to_windows(encoding, lengths.index(max(lengths)), self.max_length, overlap=0.0), 0

    def _activate(self, logits: Tensor) -> Tensor:
        """Return the probabilities of the labels, or the value of a regression."""
        match self.problem:
            case Problem.SINGLE_LABEL:
                return (logits / self.temperature).softmax(dim=-1)
            case Problem.MULTI_LABEL:
                return (logits / self.temperature).sigmoid()
            case Problem.REGRESSION:
                return logits

    def _classification(self, outputs: Sequence[float], truncated: int, num_windows: int) -> Classification:
        if self.problem is Problem.REGRESSION:
            return Classification(labels=(), scores={}, value=outputs[0], truncated=truncated, windows=num_windows)
        ranked = sorted(zip(self.labels, outputs, strict=True), key=lambda pair: -pair[1])
        chosen = tuple(label for label, probability in ranked if probability >= self.options.threshold)
        return Classification(
            labels=(ranked[0][0],) if self.problem is Problem.SINGLE_LABEL else chosen,
            scores=dict(ranked[: self.options.top_k]),
            truncated=truncated,
            windows=num_windows,
        )
