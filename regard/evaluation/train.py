"""Training with task metrics, after a quick check of the data."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.example import ImageText
from regard.doctor.examination import examine_quick
from regard.doctor.finding import Finding, Severity
from regard.doctor.finding_kinds import HEADER
from regard.doctor.recipe_data import data_files, data_formats
from regard.doctor.split_reader import Split
from regard.evaluation.evaluate import evaluate, sample_outputs
from regard.progress import write_note
from regard.tasks.registry import TASKS
from regard.terminal import escape_line
from regard.training.recipe.data_format import label_type
from regard.training.recipe.data_pipeline import make_source
from regard.training.recipe.preflight import check_recipe
from regard.training.recipe.schema import Recipe, load_recipe, merge_overrides, parse_overrides
from regard.training.run.run import run_training
from regard.training.run.run_dir import RunDir

MAX_WORDS, PROMPT_WORDS = 12, 4
"""Number of words of an example, and of a prompt, in the command that a finished training shows."""


def train(
    recipe: str | Path | Recipe,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Path:
    """Train the network of a recipe, and return the folder of the best checkpoint.

        best = regard.train("recipe.toml", {"training.steps": 2000})
        model = regard.load(best)

    A resumed run has the overrides that it was started with, besides the new ones; instead of a recipe, its folder can
    be given.

    The run directory is `output`, or the recipe's `output`, or `runs/` followed by the recipe's name. With `resume`, a
    stopped run continues from its last training state; the result is bit-identical to that of an uninterrupted run.
    A directory that holds an earlier run, or files of your own with the names of a run, is refused; with `overwrite`
    they are deleted.
    """
    if resume and overwrite:
        raise ValueError("resume continues a run and overwrite deletes it: choose one of them")
    if resume and not isinstance(recipe, Recipe) and Path(recipe).is_dir():
        recipe, output = Path(recipe) / "recipe.toml", output or recipe
    parsed, changes = _load(recipe, overrides, output, resume)
    check_recipe(parsed)
    if not resume:
        check_data(parsed)
    run_dir = _run_dir(recipe, parsed, output)
    best = run_training(
        parsed,
        run_dir,
        resume=resume,
        overwrite=overwrite,
        compute_metrics=evaluate,
        sample_outputs=sample_outputs,
        overrides=changes,
    )
    write_note(f"use it: {next_command(parsed, run_dir)}")
    return best


def _load(
    recipe: str | Path | Recipe, overrides: Mapping[str, Any] | Sequence[str], output: str | Path | None, resume: bool
) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe, and its overrides. A resumed run has those that it was started with too."""
    if isinstance(recipe, Recipe):
        return recipe, {}
    changes = parse_overrides(overrides)
    parsed = load_recipe(recipe, changes, tasks=TASKS)
    recorded = RunDir(_run_dir(recipe, parsed, output)).read_overrides() if resume else {}
    merged = merge_overrides(recorded, changes)
    if recorded.keys() - changes.keys():
        kept = ", ".join(f"{key}={value}" for key, value in merged.items() if key not in changes)
        write_note(f"resuming with the values that the run was started with: {kept}")
        parsed = load_recipe(recipe, merged, tasks=TASKS)
    return parsed, merged


def _run_dir(recipe: str | Path | Recipe, parsed: Recipe, output: str | Path | None) -> Path:
    return Path(output or parsed.output or default_run_dir(recipe))


def next_command(recipe: Recipe, run_dir: Path) -> str:
    """Return a command that uses the trained model: its task with an example of the data, to be pasted into a shell."""
    task, folder = recipe.task, shlex.quote(str(run_dir))
    if task.prepare is None:
        return f"regard show {folder}"
    example = next(iter(make_source(recipe, recipe.data.valid or recipe.data.train).read()))
    if task.input_of is None:  # the beginning of a text is a prompt
        text = " ".join(str(getattr(example, "text", example)).split()[:PROMPT_WORDS])
    else:
        value = task.input_of(example)
        fields = [str(value)] if isinstance(value, str | Path) else [str(each) for each in value]
        text = "\t".join(" ".join(each.split()[:MAX_WORDS]) for each in fields)
    return f"regard {task.name} {folder} {quote(text)}"


def quote(text: str) -> str:
    """Quote a text for a shell; a tab, which a terminal would complete, is written as \\t."""
    if "\t" not in text:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\t", "\\t")
    return f"$'{escaped}'"


def default_run_dir(recipe: str | Path | Recipe) -> Path:
    """Return the run directory of a recipe that names none."""
    return Path("runs") / ("run" if isinstance(recipe, Recipe) else Path(recipe).stem)


def check_data(recipe: Recipe) -> None:
    """Run the doctor's quick checks: raise an error for findings that block training, print warnings to stderr."""
    if recipe.task.example is ImageText:
        return  # the encoder opens every image, and names those that are damaged
    splits, formats = data_files(recipe), data_formats(recipe)
    splits.pop(Split.TEST, None)  # training does not read it
    report = examine_quick(recipe.task, splits, file_format=formats, label_type=label_type(recipe))
    lines = [_format_finding(finding) for finding in report.findings if _is_shown(finding)]
    if not report.ok:
        raise ValueError(
            "the data has errors that must be fixed first (details: `regard doctor`):\n" + "\n".join(lines)
        )
    for line in lines:
        write_note(line)


def _is_shown(finding: Finding) -> bool:
    """Whether training names a finding: those of consequence, and a first line that it does not take for an example."""
    return finding.severity is not Severity.NOTE or finding.kind == HEADER.name


def _format_finding(finding: Finding) -> str:
    lines = ", ".join(map(str, finding.lines))
    return escape_line(f"  {finding.file}{f', line {lines}' if lines else ''}: {finding.message}; {finding.remedy}")
