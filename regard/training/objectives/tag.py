"""Say which tag each word has."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.batches import Batch
from regard.training.objectives.objective import Asked, Labelling, read


@dataclass(frozen=True, kw_only=True)
class Tag(Labelling):
    """Columns `tokens` and `tags`: a word's tag stands at its first token, and IGNORED at the others."""

    says_words = False

    def ask(self, batch: Batch) -> Asked:
        """The tag of each word."""
        return Asked(read, batch, batch["tags"].tokens)
