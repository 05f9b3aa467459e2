"""The `regard` command and its subcommands.

torch and other large packages are imported only inside the commands, so `--help` stays fast.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NoReturn, TextIO, cast

import typer
from typer.core import TyperGroup

from regard.cli import convert, demo, doctor, embed, info, plot, recipes, run, search, show, tokenize, train, vectors
from regard.cli.common_options import with_common_options
from regard.cli.help_format import COMMON_OPTIONS, DocumentedCommand, first_sentence, write_command_groups, write_table
from regard.cli.interrupt import EXIT_INTERRUPTED, handle_interrupts
from regard.cli.task_command import task_command
from regard.progress import Verbosity, set_verbosity, write_detail
from regard.tasks.embed import EMBED
from regard.tasks.registry import TASKS
from regard.terminal import ClosedStream, indent_message, install_streams
from regard.training.task import AnyTask
from regard.version import __version__

OLD_OPTIONS: dict[str, dict[str, str]] = {
    "convert": {"--measure": "--calibration"},
    "demo": {"--folder": "--output"},
    "doctor": {"--length": "--max-length", "--lines": "--max-lines"},
    "recipes": {"--copy": "--output"},
    "tokenize": {"--read-special": "--parse-special"},
    "train": {"--folder": "--output"},
}
"""Former names of options, by command. They are still accepted, but `--help` does not list them."""


class RawParam:
    """Skip pydantic for a value that needs no conversion.

    To validate a value, typer imports pydantic. A value that is None or already has the annotated type is returned
    unchanged; typer validates every other value. `COMMAND --help` takes 52 instead of 100 ms (benchmarks/startup.py).
    """

    def __init__(self, parameter: Any) -> None:
        self.parameter, self.annotation = parameter, parameter.type_descriptor.annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the validated value of an option or argument."""
        if (value is None and param.nargs == 1 and not param.multiple) or type(value) is self.annotation:
            return value
        self.parameter._runtime_param = None
        return self.parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


VERBOSITY = {
    "-q": Verbosity.QUIET,
    "--quiet": Verbosity.QUIET,
    "-v": Verbosity.VERBOSE,
    "--verbose": Verbosity.VERBOSE,
}


class CommandGroup(TyperGroup):
    """The group of all commands. It avoids pydantic where possible and accepts former option names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a call. `-q` and `-v` may stand before or after the name of the command."""
        for parameter in self.params:
            _skip_pydantic(parameter)
        return super().parse_args(ctx, take_verbosity(args))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by groups, then the options."""
        commands = {name: self.commands[name] for name in self.list_commands(ctx)}
        visible = {name: command for name, command in commands.items() if not command.hidden}
        sentences = {name: first_sentence(command.help or "") for name, command in visible.items()}
        write_command_groups(formatter, sentences)
        own = [("--version", "Print the version."), *COMPLETION_OPTIONS]
        write_table(formatter, "Options", [*own, *COMMON_OPTIONS])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by name, or None."""
        command = super().get_command(ctx, cmd_name)
        for parameter in command.get_params(ctx) if command else ():
            _skip_pydantic(parameter)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command, the command, and its arguments with current option names."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, rename_options(rest, OLD_OPTIONS.get(name or "", {}))

    def get_help_option(self, ctx: Any) -> Any:
        """Return the `--help` option of `regard` itself; that of a command is one of its parameters."""
        option = super().get_help_option(ctx)
        if option is not None:
            _skip_pydantic(option)
        return option


COMPLETION_OPTIONS = (
    ("--install-completion", "Install the completion of commands and options for this shell."),
    ("--show-completion", "Print the script of this completion."),
)


def take_verbosity(words: Sequence[str]) -> list[str]:
    """Set the verbosity by the words up to a `--`, and return the other words."""
    end = words.index("--") if "--" in words else len(words)
    found = [VERBOSITY[word] for word in words[:end] if word in VERBOSITY]
    set_verbosity(found[-1] if found else Verbosity.NORMAL)
    return [*(word for word in words[:end] if word not in VERBOSITY), *words[end:]]


def print_version(value: bool | None) -> None:
    """Print the version and end the command."""
    if value:
        sys.stdout.write(f"regard {__version__}\n")
        raise typer.Exit


def rename_options(arguments: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    """Replace former option names, as `--old VALUE` or `--old=VALUE`, up to a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    result = []
    for argument in arguments[:end]:
        name, equals, value = argument.partition("=")
        result.append(renamed.get(name, name) + equals + value)
    return [*result, *arguments[end:]]


def _skip_pydantic(parameter: Any) -> None:
    if hasattr(parameter, "_runtime_param"):  # earlier versions of typer do not use pydantic
        parameter._runtime_param = RawParam(parameter)


def make_app(tasks: Iterable[AnyTask]) -> typer.Typer:
    """Return the command with all its subcommands: one for each task that can be used, and the others."""
    app = typer.Typer(
        name="regard",
        cls=CommandGroup,
        help="Train, run, convert and inspect Transformer models.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def options(
        version: Annotated[bool | None, typer.Option("--version", callback=print_version, is_eager=True)] = None,
    ) -> None:
        pass

    def add(name: str, function: Any, command_class: type[DocumentedCommand] = DocumentedCommand) -> None:
        app.command(name, cls=command_class)(with_common_options(function))

    add("demo", demo.demo)
    add("info", info.info)
    add("tokenize", tokenize.tokenize)
    add("doctor", doctor.doctor, doctor.MultiValueCommand)
    add("recipes", recipes.recipes)
    add("train", train.train)
    add("plot", plot.plot)
    for task in tasks:
        if task.prepare is not None:
            add(task.name, embed.embed_command() if task is EMBED else task_command(task))
    add("run", run.run)
    add("search", search.search)
    app.add_typer(vectors.vectors)
    add("show", show.show)
    add("convert", convert.convert)
    return app


app = make_app(TASKS.values())


def main() -> None:
    """Run a command and end the process.

    Exit codes: 0 success, 1 the command failed, 2 usage error, 130 interrupted. Typer has its own exit codes for a
    closed pipe and an interrupt; they are mapped to these. A reader of standard output that goes away, as `head` does,
    has read enough; a reader of standard error changes nothing.
    """
    handle_interrupts()
    install_streams()
    if sys.stdout is None and "--help" not in sys.argv:
        sys.stdout = cast(TextIO, ClosedStream())
    try:
        app()
    except SystemExit as end:
        if getattr(sys.stdout, "reader_gone", False):
            exit_process(0)
        if end.code == EXIT_INTERRUPTED:
            _write_message("interrupted")
        exit_process(end.code)
    except KeyboardInterrupt:
        _write_message("interrupted")
        exit_process(EXIT_INTERRUPTED)
    except (ValueError, OSError) as error:
        write_detail("".join(traceback.format_exception(error)))
        _write_message(f"error: {indent_message(str(error))}")
        exit_process(getattr(error, "exit_code", 1))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        _write_message("error: not enough memory: use a smaller network, batch, beam or input")
        exit_process(1)


def _write_message(message: str) -> None:
    """Write a line to standard error, after the results so far."""
    with suppress(OSError):  # exit_process reports it
        _flush(sys.stdout)
    sys.stderr.write(message + "\n")


def exit_process(code: int | str | None) -> NoReturn:
    """Flush the output and end the process, without Python's teardown where possible.

    After an import of torch the teardown of the interpreter takes 0.06 to 0.25 s (benchmarks/startup.py), and the
    operating system frees everything anyway.
    The process exits normally if another thread is still running, or if a tracer or profiler is active.
    """
    try:
        _flush(sys.stdout)
    except BrokenPipeError:  # the reader has read enough, as `head` does
        pass
    except OSError as error:
        _discard_stdout()
        sys.stderr.write(f"error: standard output: {error}\n")
        code = code or 1
    busy = any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
    if busy or _is_traced() or not isinstance(code, int | None):
        sys.exit(code)
    _flush(sys.stderr)
    os._exit(code or 0)


def _flush(stream: TextIO | None) -> None:
    """Flush a stream. It is None if it was closed before the process started."""
    if stream is not None:
        stream.flush()


def _discard_stdout() -> None:
    """Redirect buffered output to the null device, because standard output cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_traced() -> bool:
    """Whether a tracer, profiler or monitoring tool is active, which may have work to do at exit."""
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    tools = [] if monitoring is None else [monitoring.get_tool(number) for number in range(6)]
    return bool(sys.gettrace() or sys.getprofile() or any(tools))
