"""`regard`: the commands, gathered. Nothing heavy is imported before a command runs, so `--help` answers at once."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from regard.cli import convert, demo, doctor, generate, plot, recipes, show, tokenize, train, translate


class AsGiven:
    """What has the right type already, or is not given, stays as it is: typer would import pydantic (0.1 s) to learn
    that. Everything else is typer's to read."""

    def __init__(self, parameter: Any) -> None:
        self.parameter, self.kind = parameter, parameter.type_descriptor.annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of an option or argument."""
        if (value is None and param.nargs == 1 and not param.multiple) or type(value) is self.kind:
            return value
        self.parameter._runtime_param = None
        return self.parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


class Commands(TyperGroup):
    """All commands, and their options read without pydantic where they can be."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command."""
        command = super().get_command(ctx, cmd_name)
        for parameter in command.get_params(ctx) if command else ():
            _read_as_given(parameter)
        return command

    def get_help_option(self, ctx: Any) -> Any:
        """The `--help` of `regard` itself, which is not given in `regard show --help`."""
        option = super().get_help_option(ctx)
        if option is not None:
            _read_as_given(option)
        return option


def _read_as_given(parameter: Any) -> None:
    if hasattr(parameter, "_runtime_param"):  # earlier versions of typer do without pydantic anyway
        parameter._runtime_param = AsGiven(parameter)


app = typer.Typer(
    name="regard",
    cls=Commands,
    help="The Transformer, whole: train, load, use and inspect all its well-known families.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("tokenize")(tokenize.tokenize)
app.command("doctor", cls=doctor.SeveralValues)(doctor.doctor)
app.command("recipes")(recipes.recipes)
app.command("train")(train.train)
app.command("plot")(plot.plot)
app.command("translate")(translate.translate)
app.command("generate")(generate.generate)
app.command("show")(show.show)
app.command("convert")(convert.convert)

INTERRUPTED = 130


def main() -> None:
    """Run a command, and end the process: 0 done, 1 the work failed, 2 the call was wrong, 130 stopped by an interrupt.

    Typer turns a closed pipe and an interrupt into exit codes of its own; they are given their meaning here.
    """
    try:
        app()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # whoever read our output has read enough
            _write_no_more()
            leave(0)
        if end.code == INTERRUPTED:
            sys.stderr.write("stopped\n")
        leave(end.code)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        leave(getattr(error, "exit_code", 1))


def leave(code: int | str | None) -> NoReturn:
    """End the process, with what was written on its way.

    Python takes apart all that was ever set up before it ends. After torch that takes a while, and the system does it
    anyway: so a process with nothing left to do ends at once. Where a thread is still at work, or somebody traces or
    profiles the program, it ends as usual.
    """
    try:
        _flush(sys.stdout)
    except BrokenPipeError:  # whoever read our output has read enough
        _write_no_more()
    except OSError as error:
        _write_no_more()
        sys.stderr.write(f"error: standard output: {error}\n")
        code = code or 1
    busy = any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
    if busy or _observed() or not isinstance(code, int | None):
        sys.exit(code)
    _flush(sys.stderr)
    os._exit(code or 0)


def _flush(stream: TextIO | None) -> None:
    """Let out what a stream holds; one that was closed before we began is None."""
    if stream is not None:
        stream.flush()


def _write_no_more() -> None:
    """What standard output still holds goes nowhere: it cannot go where it was meant to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _observed() -> bool:
    """Whether somebody traces or profiles this program, and has something to do when it ends."""
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = [] if monitoring is None else [monitoring.get_tool(number) for number in range(6)]
    return bool(sys.gettrace() or sys.getprofile() or any(tools))
