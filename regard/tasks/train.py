"""Training with the task's own measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.tasks.measure import measure, sample
from regard.training import run
from regard.training.recipe import Recipe


def train(
    recipe: str | Path | Recipe,
    changes: Mapping[str, Any] | Sequence[str] = (),
    *,
    folder: str | Path | None = None,
    resume: bool = False,
) -> Path:
    """Train what a recipe describes, and return the folder of the best network.

        best = regard.train("recipe.toml", {"training.steps": 2000})
        model = regard.load(best)

    The run's folder is `folder`, or the recipe's, or `runs/` and the recipe's name. With `resume`, a run that was
    stopped goes on from its last state, and gives bit for bit what it would have given without the stop.
    """
    return run.train(recipe, changes, folder=folder, resume=resume, measure=measure, sample=sample)
