"""Say what a teacher says: distillation (Hinton et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.training.objectives.objective import Labelling, Loss, answer, scored


@dataclass(frozen=True, kw_only=True)
class Distill:
    """The teacher's objective, with its answers as part of the truth.

    Of the loss, `share` is T² · KL(teacher ‖ student), both softened by the temperature T (the factor keeps the size of
    its gradients), and the rest is the objective's own.
    """

    objective: Labelling
    """What both are asked: translate, causal, masked, classify or tag."""
    teacher: nn.Module
    """It must have the labels of the student, and so the same tokenizer."""
    temperature: float = 2.0
    share: float = 0.5

    def loss(self, network: Any, batch: Batch) -> Loss:
        """The sum over the labelled places. Without training it is the objective's own loss."""
        if not network.training:
            return self.objective.loss(network, batch)
        asked = self.objective.ask(batch)
        vectors, head, labels = answer(asked, network)
        logits = scored(head, vectors)
        with torch.no_grad():
            taught, taught_head, _ = answer(asked, self.teacher.eval())
            truth = scored(taught_head, taught)
        if truth.shape != logits.shape:
            raise ValueError(
                f"the teacher has {truth.shape[-1]} labels and the network {logits.shape[-1]}: they need the same "
                "ones, in the same order"
            )
        soft = self.temperature**2 * divergence(truth / self.temperature, logits / self.temperature)
        hard = nn.functional.cross_entropy(logits, labels, label_smoothing=self.objective.smoothing, reduction="sum")
        return Loss(self.share * soft + (1 - self.share) * hard, len(labels))


def divergence(truth: Float[Tensor, "places labels"], said: Float[Tensor, "places labels"]) -> Float[Tensor, ""]:
    """The sum of KL(truth ‖ said) = Σ p · (log p − log q), from the scores of both; in float32 at least."""
    truth, said = (x.float() if x.dtype.itemsize < 4 else x for x in (truth, said))
    return nn.functional.kl_div(said.log_softmax(-1), truth.log_softmax(-1), reduction="sum", log_target=True)
