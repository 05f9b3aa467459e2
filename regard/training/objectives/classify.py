"""Say which label a text has."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.batches import Batch
from regard.training.objectives.objective import Asked, Labelling, read


@dataclass(frozen=True, kw_only=True)
class Classify(Labelling):
    """Columns `tokens` and `label`, one label for each row; and `segments` where texts come in pairs."""

    says_words = False

    def ask(self, batch: Batch) -> Asked:
        """The label of each row."""
        return Asked(read, batch, batch["label"].tokens)
