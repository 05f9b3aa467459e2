"""`regard train`: train a model from a recipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.text_io import DEVICE_OPTION
from regard.threads import ThreadSettings


def train(
    recipe: Annotated[
        Path,
        typer.Argument(help="Recipe (TOML file); `regard recipes` lists the presets. With --resume also a run folder."),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="Override values of the recipe: training.steps=2000."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Folder of the run. [runs/NAME]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run in the folder of the run, and train again.")
    ] = False,
    device: Annotated[str | None, DEVICE_OPTION] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the recipe and print the plan only.")] = False,
) -> None:
    """Train the model that RECIPE describes. The best checkpoint is in the folder `best` of the run directory."""
    if resume and overwrite:
        raise typer.BadParameter("--resume continues a run and --overwrite deletes it: choose one of them")
    overrides = [*(overrides or ()), *([f"training.device={device}"] if device else ())]
    if ThreadSettings.requested is not None:
        overrides = [*overrides, f"training.threads={ThreadSettings.requested}"]
    if dry_run:
        from regard.tasks.registry import TASKS
        from regard.training.recipe.dry_run import describe_run
        from regard.training.recipe.schema import load_recipe

        sys.stdout.write(describe_run(load_recipe(recipe, overrides, tasks=TASKS)))
        return
    from regard.evaluation.train import train as run

    sys.stdout.write(f"{run(recipe, overrides, output=output, resume=resume, overwrite=overwrite)}\n")
