"""Token classification: predict the tag of each word."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.batches import Batch
from regard.training.objectives.objective import CrossEntropyObjective, LabeledBatch, forward_batch


@dataclass(frozen=True, kw_only=True)
class TokenClassification(CrossEntropyObjective):
    """Columns `tokens` and `tags`: the tag of a word is at its first token, `IGNORE_INDEX` at the others."""

    has_perplexity = False

    def label_batch(self, batch: Batch) -> LabeledBatch:
        """Return the tag of each word."""
        return LabeledBatch(forward_batch, batch, batch["tags"].values)
