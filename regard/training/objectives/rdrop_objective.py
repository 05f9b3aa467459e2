"""Say the same twice: R-Drop (Liang et al. 2021), which keeps a network from learning little data by heart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from regard.data.batches import Batch
from regard.training.modules.fused_modules import agreeing_words_loss
from regard.training.objectives.distillation import divergence
from regard.training.objectives.objective import Answer, Asked, Labelling, Loss, answer, piecewise, scored
from regard.transformer.position import RelativeWaves
from regard.transformer.stack import Stack


@dataclass(frozen=True, kw_only=True)
class Agree:
    """Another objective, asked twice: dropout leaves out other parts each time, and the two answers are to be alike.

    All rows are read once more behind themselves, in one batch of twice the size, where that is the same.

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
        vectors, head, labels = self._answer_twice(self.objective.ask(batch), network)
        smoothing, count = self.objective.smoothing, len(labels) // 2
        if piecewise(head, vectors):
            both = agreeing_words_loss(head, vectors, labels[:count], smoothing, self.weight)
        else:
            scores = scored(head, vectors)
            one, other = scores[:count], scores[count:]
            apart = (divergence(one, other) + divergence(other, one)) / 2
            both = self.weight * apart + cross_entropy(scores, labels, label_smoothing=smoothing, reduction="sum")
        return Loss(both / 2, count)

    def _answer_twice(self, asked: Asked, network: Any) -> Answer:
        """All answers, and then all answers once more."""
        if not _draws_for_all(network):
            return answer(asked.twice(), network)
        (first, head, labels), (second, _, _) = answer(asked, network), answer(asked, network)
        return torch.cat([first, second]), head, labels.repeat(2)


def _draws_for_all(network: nn.Module) -> bool:
    """Whether something is left out for all rows of a batch at once, as whole layers are: to read a row twice in one
    batch would leave out the same both times."""
    parts = list(network.modules())
    layers = any(isinstance(part, Stack) and part.layer_dropout > 0 for part in parts)
    return layers or any(isinstance(part, RelativeWaves) for part in parts)
