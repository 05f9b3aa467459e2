"""`regard train`: from a recipe to a model folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file. `regard recipes` has ready ones.")],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="training.steps=2000: change the recipe.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="The folder of the run; runs/NAME if left out.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")] = False,
) -> None:
    """Train what RECIPE describes. The best network is in the folder `best` of the run."""
    if dry_run:
        from regard.evaluation.train import check_best
        from regard.training.recipe.dry_run import outlook
        from regard.training.recipe.schema import read

        chosen = read(recipe, changes or ())
        check_best(chosen)
        sys.stdout.write(outlook(chosen))
        return
    from regard.evaluation.train import train as run

    sys.stdout.write(f"{run(recipe, changes or (), folder=folder, resume=resume)}\n")
