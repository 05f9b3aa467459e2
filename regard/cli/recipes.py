"""`regard recipes`: preset recipes, one for each objective."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.progress import write_note


def recipes(
    name: Annotated[str | None, typer.Argument(help="Show this recipe.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the recipe to this file or folder.")
    ] = None,
) -> None:
    """List the preset recipes, show the one called NAME, or write it to a file."""
    from regard.training.recipe.presets import preset_names, preset_text, preset_title

    if name is None:
        width = max(map(len, preset_names()))
        for preset in preset_names():
            sys.stdout.write(f"{preset:{width}}  {preset_title(preset)}\n")
        return
    try:
        recipe = preset_text(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if output is None:
        sys.stdout.write(recipe)
        return
    target = output / f"{name}.toml" if output.is_dir() else output
    if target.exists():
        raise typer.BadParameter(f"{target} already exists: choose another name")
    target.write_text(recipe, encoding="utf-8")
    write_note(f"{target}: written")
