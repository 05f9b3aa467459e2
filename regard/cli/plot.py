"""`regard plot`: plot the curves of training runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders; several are drawn in one picture.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Picture to write, .svg or .png. [curves.svg in the first run]"
        ),
    ] = None,
) -> None:
    """Plot the losses and metrics of training runs, step by step."""
    for run in runs:
        if not (run / "metrics.jsonl").is_file():
            raise typer.BadParameter(f"{run} has no metrics.jsonl: expected the folder of a training run")
    from regard.figure import FORMATS

    target = output or runs[0] / "curves.svg"
    if target.suffix not in FORMATS:
        raise typer.BadParameter(f"{target}: the file name must end in {' or '.join(FORMATS)}")
    from regard.training.run.curves import plot_curves

    plot_curves(runs, target)
    sys.stdout.write(f"{target}\n")
