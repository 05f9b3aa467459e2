"""`regard plot`: plot the curves of a training run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def plot(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Output file: .svg, or .png if matplotlib is installed. [RUN/curves.svg]"),
    ] = None,
) -> None:
    """Plot the losses and metrics of a run by step."""
    if not (run / "metrics.jsonl").is_file():
        raise typer.BadParameter(f"{run} has no metrics.jsonl: expected a run directory")
    target = output or run / "curves.svg"
    if target.suffix not in (".svg", ".png"):
        raise typer.BadParameter(f"{target}: the file name must end in .svg or .png")
    from regard.training.run.curves import plot_curves

    plot_curves(run, target)
    sys.stdout.write(f"{target}\n")
