"""`regard recipes`: ready recipes, one for each objective."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def recipes(
    name: Annotated[str | None, typer.Argument(help="Show this one.")] = None,
    copy: Annotated[Path | None, typer.Option(help="Write it to this file, to be changed.")] = None,
) -> None:
    """List the ready recipes; show one by its NAME, or copy it."""
    from regard.training.recipe.presets import names, text, title

    if name is None:
        width = max(map(len, names()))
        for each in names():
            sys.stdout.write(f"{each:{width}}  {title(each)}\n")
        return
    try:
        recipe = text(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if copy is None:
        sys.stdout.write(recipe)
        return
    target = copy / f"{name}.toml" if copy.is_dir() else copy
    if target.exists():
        raise typer.BadParameter(f"{target} is there already: choose another name")
    target.write_text(recipe, encoding="utf-8")
    sys.stderr.write(f"{target}: written\n")
