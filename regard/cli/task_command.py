"""The command of a task, made from its declaration: arguments, options and `--help`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.text_io import DEVICE_OPTION, PRECISION_OPTION, Precision
from regard.progress import write_note
from regard.tasks.generated_text import GeneratedText
from regard.tasks.options import OptionField, option_fields
from regard.training.task import AnyTask

if TYPE_CHECKING:
    from regard.cli.image_io import ImageInputs
    from regard.cli.text_io import TextInputs


def task_command(task: AnyTask) -> Callable[..., None]:
    """Return the function of a task's command. Its signature tells typer the arguments and options."""

    def command(**values: Any) -> None:
        run_task(task, TaskCall.of(values), values)

    parameters = list(task_parameters(task))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = f"{task.summary}\n\n{task.details}".strip()
    return command


@dataclass(frozen=True)
class TaskCall:
    """What a command was called with, besides the options of its task."""

    model: str
    input: str | None
    precision: Precision | None
    device: str | None
    as_json: bool
    stream: bool
    as_tsv: bool = False

    @classmethod
    def of(cls, values: dict[str, Any]) -> TaskCall:
        """Take the arguments that all tasks have out of those of a command; the others are the options of its task."""
        names = ("model", "input", "precision", "device", "as_json")
        return cls(
            **{name: values.pop(name) for name in names},
            stream=values.pop("stream", False),
            as_tsv=values.pop("as_tsv", False),
        )


def run_task(task: AnyTask, call: TaskCall, values: Mapping[str, Any]) -> None:
    """Run a task on the inputs of a command, and write the results."""
    from regard.cli.text_io import usage_errors, write_results, write_streams

    with usage_errors():
        if call.as_tsv and (call.as_json or call.stream):
            raise ValueError("--tsv cannot be combined with --json or --stream: leave out one")
        options = build_options(task, values, call.as_json or call.as_tsv)
    if call.stream and getattr(options, "n_best", 1) > 1:
        raise typer.BadParameter(f"--stream prints one text per {task.input.name}: remove --n-best")
    inputs, runner = open_task(task, call, options)
    sampling = getattr(getattr(runner, "options", None), "sampling", None)
    if sampling is not None and options.sampling.seed is None:
        write_note(f"sampled with --seed {sampling.seed}")
    if call.stream:
        write_streams(map(runner.stream, inputs), inputs.is_single, call.as_json)
        inputs.raise_error()
    else:
        write_results(runner.run(inputs, buffer_size=inputs.buffer_size), inputs, call.as_json, call.as_tsv)


def open_task(task: AnyTask, call: TaskCall, options: Any) -> tuple[TextInputs | ImageInputs, Any]:
    """Return the inputs of a command, and the model joined with the options of the task."""
    from regard.cli.image_io import ImageInputs, names_images, reads_images
    from regard.cli.text_io import TextInputs, load_model, usage_errors

    inputs = ImageInputs(call.input) if names_images(call.input) else TextInputs(call.input, task.input)
    loaded = load_model(call.model, call.precision, call.device)
    if reads_images(loaded.network, options):
        inputs = ImageInputs(call.input)
    elif isinstance(inputs, ImageInputs):
        raise typer.BadParameter(f"{call.input} has images, but this model reads texts (for CLIP's images: --images)")
    with usage_errors():
        return inputs, loaded.prepare(task, options)


def build_options(task: AnyTask, values: Mapping[str, Any], as_json: bool) -> Any:
    """Make the options of a task from those that were given. The others have the defaults of the task."""
    chosen: dict[str, Any] = {}
    for field in option_fields(task.options):
        value = values[field.name]
        if field.inner:
            inner = {each.name: values[each.name] for each in field.inner if values[each.name] is not None}
            value = field.value_type(**inner) if value or inner else None
        if value and field.json_only and not as_json:
            raise ValueError(f"{field.flags[0]} is part of the JSON output: add --json")
        if value not in (None, []):
            chosen[field.name] = value
    return task.options(**chosen)


def task_parameters(task: AnyTask) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a task's command."""
    yield _parameter("model", str, typer.Argument(metavar="MODEL", help="Model folder."))
    metavar = task.input.name.upper()
    yield _parameter("input", str | None, typer.Argument(metavar=metavar, help=task.input.help), None)
    for field in option_fields(task.options):
        yield _option_parameter(field)
        for inner in field.inner:
            yield _option_parameter(replace(inner, sentence=f"{inner.sentence} Implies {field.flags[0]}."))
    yield _parameter("precision", Precision | None, PRECISION_OPTION, None)
    yield _parameter("device", str | None, DEVICE_OPTION, None)
    if issubclass(task.result, GeneratedText):
        yield _parameter("stream", bool, typer.Option("--stream", help="Print each text while it is generated."), False)
    json_option = typer.Option("--json", help="Print one JSON object per line, with all fields of the result.")
    yield _parameter("as_json", bool, json_option, False)
    tsv_option = typer.Option(
        "--tsv", help="Print a table with all fields of the results: a header, then one line each."
    )
    yield _parameter("as_tsv", bool, tsv_option, False)


def _option_parameter(field: OptionField) -> inspect.Parameter:
    """Return the parameter of one option. Its default is None, which stands for the default of the task."""
    if field.value_type is bool or field.inner:
        return _parameter(field.name, bool, typer.Option(*field.flags, help=field.sentence), False)
    remarks = ["Can be repeated."] if field.repeated else []
    remarks += [f"[{field.default}]"] if field.default not in (None, "", ()) else []
    option = typer.Option(
        *field.flags,
        min=field.at_least,
        help=" ".join([field.sentence, *remarks]),
        show_default=False,
    )
    annotation: Any = list[field.value_type] if field.repeated else field.value_type  # type: ignore[name-defined]
    return _parameter(field.name, annotation | None, option, None)


def _parameter(name: str, annotation: Any, info: Any, default: Any = ...) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=Annotated[annotation, info], default=default)
