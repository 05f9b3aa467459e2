"""Say the next token of a text: causal language modelling (Bengio et al. 2003, Radford et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.data.batches import Batch, Ids
from regard.data.encoders.encoder_base import IGNORED
from regard.training.objectives.objective import Asked, Labelling, read


@dataclass(frozen=True, kw_only=True)
class Causal(Labelling):
    """A column `tokens`, its rows documents or pieces of them. Every token but a row's first is to be said."""

    def ask(self, batch: Batch) -> Asked:
        """Every token that has one before it."""
        return Asked(read, batch, next_tokens(batch["tokens"]))


def next_tokens(tokens: Ids) -> Tensor:
    """What is to be said at each place; nothing at the last of a row."""
    labels = tokens.tokens.roll(-1)
    labels[tokens.rows.last] = IGNORED
    return labels
