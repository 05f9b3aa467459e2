"""Say which tag each word has."""

from __future__ import annotations

from dataclasses import dataclass

from regard.training.objective import Asked, Batch, Labelling


@dataclass(frozen=True, kw_only=True)
class Tag(Labelling):
    """Columns `tokens` and `labels`: a word's tag stands at its first token, and IGNORED at the others."""

    def ask(self, batch: Batch) -> Asked:
        """The tag of each word."""
        return Asked(batch.read, batch["labels"].values)
