"""Sequence classification: predict the label of a text."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.batches import Batch
from regard.training.objectives.objective import CrossEntropyObjective, LabeledBatch, forward_batch


@dataclass(frozen=True, kw_only=True)
class SequenceClassification(CrossEntropyObjective):
    """Columns `tokens` and `label`, one label for each sequence; and `segments` for pairs of texts."""

    has_perplexity = False

    def label_batch(self, batch: Batch) -> LabeledBatch:
        """Return the label of each sequence."""
        return LabeledBatch(forward_batch, batch, batch["label"].values)
