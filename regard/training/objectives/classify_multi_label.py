"""Classification with any number of labels for each text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.data.batches import Batch
from regard.training.objectives.objective import Loss, forward_batch


@dataclass(frozen=True, kw_only=True)
class MultiLabelClassification:
    """Columns `tokens` and `label`: a 0 or 1 for each label of each sequence; and `segments` for pairs of texts.

    The loss of a sequence is the mean of the binary cross-entropies of all labels.
    """

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the loss summed over the sequences."""
        logits = forward_batch(network, batch).logits
        targets = batch["label"].values.view_as(logits).to(logits.dtype)
        losses = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return Loss(losses.mean(dim=1).sum(), len(logits))
