"""Regression: predict a number for a text or a pair of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.data.batches import Batch
from regard.training.objectives.objective import Loss, forward_batch


@dataclass(frozen=True, kw_only=True)
class Regression:
    """Columns `tokens` and `label`, one number for each sequence; and `segments` for pairs of texts.

    The loss of a sequence is its squared error.
    """

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the loss summed over the sequences."""
        logits = forward_batch(network, batch).logits
        if logits.shape[1] != 1:
            raise ValueError(f"a regression needs a head with one output, this one has {logits.shape[1]}")
        targets = batch["label"].values.to(logits.dtype)
        return Loss(nn.functional.mse_loss(logits[:, 0], targets, reduction="sum"), len(logits))
