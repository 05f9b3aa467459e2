"""R-Drop (Liang et al. 2021): regularization against overfitting on little data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from regard.data.batches import Batch
from regard.training.modules.fused_modules import lm_head_rdrop_loss
from regard.training.objectives.distillation import kl_divergence
from regard.training.objectives.objective import (
    CrossEntropyObjective,
    HeadInputs,
    LabeledBatch,
    Loss,
    compute_logits,
    forward_to_head,
    uses_chunked_loss,
)
from regard.transformer.position import RelativeWaves
from regard.transformer.stack import Stack


@dataclass(frozen=True, kw_only=True)
class RDrop:
    """Wraps an objective: two forward passes with different dropout, whose predictions should agree.

    Both passes run as one batch that contains all sequences twice, unless dropout is shared by the whole batch.

    The loss is the mean of the two losses, plus `alpha` / 2 times their divergence, which is the mean of KL(p ‖ q) and
    KL(q ‖ p). (The paper adds the two losses; here all is halved, so that it is a loss per label like all others.)
    """

    objective: CrossEntropyObjective
    alpha: float = 5.0
    start_epoch: int = 0
    """First epoch with R-Drop; before it the loss is that of the objective."""

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the summed R-Drop loss. In evaluation mode, and before `start_epoch`, that of the objective."""
        if not network.training or batch.epoch < self.start_epoch:
            return self.objective.loss(network, batch)
        hidden, head, labels = self._forward_twice(self.objective.label_batch(batch), network)
        label_smoothing, count = self.objective.label_smoothing, len(labels) // 2
        if uses_chunked_loss(head, hidden):
            total = lm_head_rdrop_loss(head, hidden, labels[:count], label_smoothing, self.alpha)
        else:
            logits = compute_logits(head, hidden)
            first, second = logits[:count], logits[count:]
            kl = (kl_divergence(first, second) + kl_divergence(second, first)) / 2
            total = self.alpha * kl + cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction="sum")
        return Loss(total / 2, count)

    def _forward_twice(self, labeled: LabeledBatch, network: Any) -> HeadInputs:
        """Return the hidden states of the first pass, followed by those of the second."""
        if not _has_batchwide_dropout(network):
            return forward_to_head(labeled.duplicate(), network)
        (first, head, labels), (second, _, _) = (
            forward_to_head(labeled, network),
            forward_to_head(labeled.second_copy(), network),
        )
        return torch.cat([first, second]), head, labels.repeat(2)


def _has_batchwide_dropout(network: nn.Module) -> bool:
    """Whether some dropout is shared by all sequences of a batch (layer dropout, relative positions).

    Duplicated sequences in one batch would then have the same dropout in both passes.
    """
    modules = list(network.modules())
    has_layer_dropout = any(isinstance(module, Stack) and module.layer_dropout > 0 for module in modules)
    return has_layer_dropout or any(isinstance(module, RelativeWaves) for module in modules)
