"""Loss, perplexity and accuracy on the validation data."""

from __future__ import annotations

import math
from typing import Any

import torch

from regard.data.batches import Batches
from regard.training.objectives.bpe_dropout import BpeDropout
from regard.training.objectives.distillation import Distillation
from regard.training.objectives.objective import CrossEntropyObjective, Objective
from regard.training.objectives.rdrop_objective import RDrop
from regard.training.run.batch_stream import to_device
from regard.training.run.evaluation_monitor import EvaluationMonitor
from regard.training.run.state import RandomDraws, batch_seed
from regard.training.run.word_perplexity import TextSize

VALIDATION_SEED = batch_seed(0, 0, 0, "valid")
"""The seed of the random choices in every validation."""


@torch.no_grad()
def validate(
    network: Any,
    objective: Objective,
    batches: Batches,
    device: str = "cpu",
    size: TextSize | None = None,
    monitor: EvaluationMonitor | None = None,
    random_draws: RandomDraws = RandomDraws.BY_KEY,
) -> dict[str, float]:
    """Compute the mean loss and the metrics of the objective, without dropout and label smoothing.

    The random choices of an objective (which tokens are masked) are the same every time. With the size of
    the text, the word-level perplexity is exp(sum of losses / words), and the bits per character are the sum of the
    losses in bits / characters; neither depends on the tokenizer.
    """
    total, count = 0.0, 0
    correct: dict[str, int] = {}
    monitor = monitor or EvaluationMonitor()
    steps = monitor.select(range(batches.steps(0)))
    for plain_batch in monitor.track((batches.get(0, step) for step in steps), len(steps)):
        torch.manual_seed(batch_seed(0, 0, plain_batch.step, "valid"))
        by_key = random_draws is RandomDraws.BY_KEY
        batch = plain_batch.with_random_keys(VALIDATION_SEED) if by_key else plain_batch
        loss = objective.loss(network, to_device(batch, torch.device(device)))
        total, count = total + float(loss.sum), count + loss.count
        for name, number in loss.correct.items():
            correct[name] = correct.get(name, 0) + number
    metrics = {"loss": total / max(1, count)}
    if _has_perplexity(objective):
        metrics["perplexity"] = _capped_exp(metrics["loss"])
    if size is not None and size.words and size.characters:
        metrics["word_perplexity"] = _capped_exp(total / size.words)
        metrics["bits_per_character"] = total / math.log(2) / size.characters
    return metrics | {name: number / max(1, count) for name, number in correct.items()}


def _capped_exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # exp(710) overflows float64


def _has_perplexity(objective: Objective) -> bool:
    while isinstance(objective, BpeDropout | Distillation | RDrop):
        objective = objective.objective
    return isinstance(objective, CrossEntropyObjective) and objective.has_perplexity
