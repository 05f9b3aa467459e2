"""How well a network does on the validation data."""

from __future__ import annotations

import math
from typing import Any

import torch

from regard.data.batches import Batches
from regard.training.objectives.bpe_dropout import Split
from regard.training.objectives.distillation import Distill
from regard.training.objectives.objective import Labelling, Objective
from regard.training.objectives.rdrop_objective import Agree
from regard.training.run.batch_stream import moved
from regard.training.run.state import seed_of


@torch.no_grad()
def validate(
    network: Any, objective: Objective, batches: Batches, device: str = "cpu", words: int | None = None
) -> dict[str, float]:
    """The mean loss over all of it, and what else the objective counts; without dropout or label smoothing.

    What an objective draws at random (which words are hidden) is the same every time. Where the number of words is
    known, the perplexity by word is exp(sum of losses / words): it does not depend on how words were cut into tokens.
    """
    total, count = 0.0, 0
    right: dict[str, int] = {}
    for batch in batches.epoch(0):
        torch.manual_seed(seed_of(0, 0, batch.step, "valid"))
        loss = objective.loss(network, moved(batch, torch.device(device)))
        total, count = total + float(loss.sum), count + loss.count
        for name, number in loss.right.items():
            right[name] = right.get(name, 0) + number
    found = {"loss": total / max(1, count)}
    if _says_words(objective):
        found["perplexity"] = _exp(found["loss"])
    if words:
        found["word_perplexity"] = _exp(total / words)
    return found | {name: number / max(1, count) for name, number in right.items()}


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # a finite number, however bad


def _says_words(objective: Objective) -> bool:
    while isinstance(objective, Split | Distill | Agree):
        objective = objective.objective
    return isinstance(objective, Labelling) and objective.says_words
