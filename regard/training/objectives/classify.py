"""Say which label a text has."""

from __future__ import annotations

from dataclasses import dataclass

from regard.training.objective import Asked, Batch, Labelling, read


@dataclass(frozen=True, kw_only=True)
class Classify(Labelling):
    """Idss `tokens` and `label`, one label for each row; and `segments` where texts come in pairs."""

    def ask(self, batch: Batch) -> Asked:
        """The label of each row."""
        return Asked(lambda network: read(network, batch), batch["label"].tokens)
