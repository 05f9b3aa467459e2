"""The command `regard run`: whatever a model was made for."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.task_command import TaskCall, run_task
from regard.cli.text_io import PRECISION_OPTION, Precision
from regard.progress import write_note


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model folder.")],
    input: Annotated[
        str | None,
        typer.Argument(metavar="INPUT", help="An input of its task, a file, or - for standard input."),
    ] = None,
    precision: Annotated[Precision | None, PRECISION_OPTION] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Run the task that MODEL was made for: one output line per input line, in order.

    The task is that of regard.json, or follows from the class in config.json. The command of the task has its options.
    """
    from regard.checkpoint.model_folder import ModelFolder, find_model
    from regard.tasks.options import option_fields
    from regard.tasks.registry import task_of

    folder = find_model(model)
    task = task_of(ModelFolder(folder).info, lambda: _network_of(model))
    write_note(f"this model was made for {task.name}: `regard {task.name}` has all options")
    values = {each.name: None for field in option_fields(task.options) for each in (field, *field.inner)}
    run_task(task, TaskCall(model, input, precision, None, as_json, False), values)


def _network_of(folder: str) -> object:
    from regard.model import load

    return load(folder).network
