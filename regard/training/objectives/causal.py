"""Causal language modelling: predict the next token (Bengio et al. 2003, Radford et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.data.batches import Batch, PackedColumn
from regard.data.encoders.encoder_base import IGNORE_INDEX
from regard.training.objectives.objective import CrossEntropyObjective, LabeledBatch, forward_batch


@dataclass(frozen=True, kw_only=True)
class CausalLM(CrossEntropyObjective):
    """Column `tokens`: documents or chunks of them. Every token except the first of a sequence is predicted."""

    def label_batch(self, batch: Batch) -> LabeledBatch:
        """Label each position with the next token."""
        return LabeledBatch(forward_batch, batch, next_token_labels(batch["tokens"]))


def next_token_labels(tokens: PackedColumn) -> Tensor:
    """Return the next token at each position; `IGNORE_INDEX` at the last of a sequence."""
    labels = tokens.values.roll(-1)
    labels[tokens.layout.last_indices] = IGNORE_INDEX
    return labels
