"""Say the same twice: R-Drop (Liang et al. 2021), which keeps a network from learning little data by heart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.nn.functional import cross_entropy

from regard.data.batches import Batch
from regard.training.objective import Labelling, Loss, answer, piecewise, scored
from regard.training.objectives.distill import divergence
from regard.training.quick import agreeing_words_loss


@dataclass(frozen=True, kw_only=True)
class Agree:
    """Another objective, asked twice: dropout leaves out other parts each time, and the two answers are to be alike.

    All rows are read once more behind themselves, in one batch of twice the size.

    The loss is the mean of the two, plus `weight` / 2 times their divergence, which is the mean of KL(p ‖ q) and
    KL(q ‖ p). (The paper adds the two losses up; here it is halved, to be a loss per label as all others are.)
    """

    objective: Labelling
    weight: float = 5.0
    begin: int = 0
    """The epoch it begins with."""

    def loss(self, network: Any, batch: Batch) -> Loss:
        """The sum over the labelled places. Without training, and before it begins, it is the objective's own loss."""
        if not network.training or batch.epoch < self.begin:
            return self.objective.loss(network, batch)
        vectors, head, labels = answer(self.objective.ask(batch).twice(), network)
        smoothing, count = self.objective.smoothing, len(labels) // 2
        if piecewise(head, vectors):
            both = agreeing_words_loss(head, vectors, labels[:count], smoothing, self.weight)
        else:
            scores = scored(head, vectors)
            one, other = scores[:count], scores[count:]
            apart = (divergence(one, other) + divergence(other, one)) / 2
            both = self.weight * apart + cross_entropy(scores, labels, label_smoothing=smoothing, reduction="sum")
        return Loss(both / 2, count)
