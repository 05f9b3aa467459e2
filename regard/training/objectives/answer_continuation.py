"""Question answering by a decoder: predict the tokens of the answer after context and question."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.batches import Batch
from regard.training.objectives.objective import CrossEntropyObjective, LabeledBatch, forward_batch


@dataclass(frozen=True, kw_only=True)
class AnswerContinuation(CrossEntropyObjective):
    """Columns `tokens` and `labels`: the next token at each position from which the answer is predicted."""

    def label_batch(self, batch: Batch) -> LabeledBatch:
        """Return the labels of the batch."""
        return LabeledBatch(forward_batch, batch, batch["labels"].values)
