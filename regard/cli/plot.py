"""`regard plot`: the curves of a run as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def plot(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    output: Annotated[
        Path | None, typer.Option(help="The picture: .svg, or .png where matplotlib is installed. RUN/curves.svg.")
    ] = None,
) -> None:
    """Draw the losses and measures of a run, step by step."""
    if not (run / "metrics.jsonl").is_file():
        raise typer.BadParameter(f"{run} has no metrics.jsonl: give the folder of a run")
    target = output or run / "curves.svg"
    if target.suffix not in (".svg", ".png"):
        raise typer.BadParameter(f"{target}: the name must end in .svg or .png")
    from regard.training.run.curves import plot as draw

    draw(run, target)
    sys.stdout.write(f"{target}\n")
