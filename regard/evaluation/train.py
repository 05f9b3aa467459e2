"""Training with task metrics, after a quick check of the data."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.doctor.examination import examine_quick
from regard.doctor.finding import Finding, Severity
from regard.doctor.finding_kinds import HEADER
from regard.doctor.recipe_data import data_files, data_formats
from regard.doctor.split_reader import Split
from regard.evaluation.evaluate import evaluate, sample_outputs
from regard.tasks.registry import TASKS
from regard.training.recipe.preflight import check_recipe
from regard.training.recipe.schema import Recipe, load_recipe
from regard.training.run.run import run_training


def train(
    recipe: str | Path | Recipe,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    output: str | Path | None = None,
    resume: bool = False,
) -> Path:
    """Train the network of a recipe, and return the folder of the best checkpoint.

        best = regard.train("recipe.toml", {"training.steps": 2000})
        model = regard.load(best)

    The run directory is `output`, or the recipe's `output`, or `runs/` followed by the recipe's name. With `resume`, a
    stopped run continues from its last training state; the result is bit-identical to that of an uninterrupted run.
    """
    parsed = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides, tasks=TASKS)
    check_recipe(parsed)
    if not resume:
        check_data(parsed)
    run_dir = Path(output or parsed.output or default_run_dir(recipe))
    return run_training(parsed, run_dir, resume=resume, compute_metrics=evaluate, sample_outputs=sample_outputs)


def default_run_dir(recipe: str | Path | Recipe) -> Path:
    """Return the run directory of a recipe that names none."""
    return Path("runs") / ("run" if isinstance(recipe, Recipe) else Path(recipe).stem)


def check_data(recipe: Recipe) -> None:
    """Run the doctor's quick checks: raise an error for findings that block training, print warnings to stderr."""
    splits, formats = data_files(recipe), data_formats(recipe)
    splits.pop(Split.TEST, None)  # training does not read it
    report = examine_quick(recipe.task.name, splits, file_format=formats)
    lines = [_format_finding(finding) for finding in report.findings if _is_shown(finding)]
    if not report.ok:
        raise ValueError(
            "the data has errors that must be fixed first (details: `regard doctor`):\n" + "\n".join(lines)
        )
    for line in lines:
        sys.stderr.write(line + "\n")


def _is_shown(finding: Finding) -> bool:
    """Whether training names a finding: those of consequence, and a first line that it does not take for an example."""
    return finding.severity is not Severity.NOTE or finding.kind == HEADER.name


def _format_finding(finding: Finding) -> str:
    lines = ", ".join(map(str, finding.lines))
    return f"  {finding.file}{f', line {lines}' if lines else ''}: {finding.message}; {finding.remedy}"
