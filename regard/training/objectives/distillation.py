"""Knowledge distillation (Hinton et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.training.objectives.objective import CrossEntropyObjective, Loss, compute_logits, forward_to_head


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """Wraps an objective: the distribution of a teacher is part of the target.

    The loss is alpha · T² · KL(teacher ‖ student) + (1 − alpha) · cross-entropy. The temperature T divides the logits
    of both; the factor T² keeps the size of the gradients.
    """

    objective: CrossEntropyObjective
    """The objective of both: translate, causal, masked, classify or tag."""
    teacher: nn.Module
    """It must have the labels of the student, so for language models the same tokenizer."""
    temperature: float = 2.0
    alpha: float = 0.5

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the loss, summed over the labeled positions. In evaluation mode it is that of the objective."""
        if not network.training:
            return self.objective.loss(network, batch)
        labeled = self.objective.label_batch(batch)
        hidden, head, labels = forward_to_head(labeled, network)
        logits = compute_logits(head, hidden)
        with torch.no_grad():
            teacher_hidden, teacher_head, _ = forward_to_head(labeled, self.teacher.eval())
            teacher_logits = compute_logits(teacher_head, teacher_hidden)
        if teacher_logits.shape != logits.shape:
            raise ValueError(
                f"the teacher has {teacher_logits.shape[-1]} labels and the student {logits.shape[-1]}: both need the "
                "same labels in the same order"
            )
        soft_loss = self.temperature**2 * kl_divergence(teacher_logits / self.temperature, logits / self.temperature)
        hard_loss = nn.functional.cross_entropy(
            logits, labels, label_smoothing=self.objective.label_smoothing, reduction="sum"
        )
        return Loss(self.alpha * soft_loss + (1 - self.alpha) * hard_loss, len(labels))


def kl_divergence(
    teacher_logits: Float[Tensor, "positions labels"], student_logits: Float[Tensor, "positions labels"]
) -> Float[Tensor, ""]:
    """Return the summed KL(teacher ‖ student) = Σ p · (log p − log q), computed in at least float32."""
    teacher_logits, student_logits = (
        x.float() if x.dtype.itemsize < 4 else x for x in (teacher_logits, student_logits)
    )
    return nn.functional.kl_div(
        student_logits.log_softmax(-1), teacher_logits.log_softmax(-1), reduction="sum", log_target=True
    )
