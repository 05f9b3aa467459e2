"""Training with the task's own measures, after a look at the data."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.doctor.examination import quick
from regard.doctor.finding import Finding, Severity
from regard.doctor.tolerant_reader import Split
from regard.evaluation.evaluate import MEASURES, measure, sample
from regard.training.recipe.data_pipeline import source_of
from regard.training.recipe.preflight import check
from regard.training.recipe.schema import Recipe, RecipeError, read
from regard.training.run import run


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
    chosen = recipe if isinstance(recipe, Recipe) else read(recipe, changes)
    check_best(chosen)
    check(chosen)
    if not resume:
        examine(chosen)
    place = folder or chosen.folder or run.default_folder(recipe)
    return run.train(chosen, folder=place, resume=resume, measure=measure, sample=sample)


def check_best(recipe: Recipe) -> None:
    """A measure that nobody takes is told now, not at the first evaluation."""
    known, best = MEASURES[recipe.task], recipe.training.best
    if best not in known:
        near = difflib.get_close_matches(best, known, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise RecipeError(f"training.best: task {recipe.task!r} is measured by {', '.join(known)}, not {best!r}{hint}")


def examine(recipe: Recipe) -> None:
    """The cheap part of what the doctor does: what has to be mended first is an error, what is doubtful is said."""
    sets = {Split.TRAIN: recipe.data.train, Split.VALID: recipe.data.valid}
    files = {split: [Path(file) for file in given] for split, given in sets.items() if given}
    report = quick(recipe.task, files, form=source_of(recipe, recipe.data.train).form)
    told = [_told(finding) for finding in report.findings if finding.severity is not Severity.NOTE]
    if not report.go_ahead:
        raise ValueError("this data has to be mended first (`regard doctor` tells more):\n" + "\n".join(told))
    for line in told:
        sys.stderr.write(line + "\n")


def _told(finding: Finding) -> str:
    lines = ", ".join(map(str, finding.lines))
    return f"  {finding.file}{f', line {lines}' if lines else ''}: {finding.said}; {finding.remedy}"
