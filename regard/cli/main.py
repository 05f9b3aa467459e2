"""`regard`: the commands, gathered. Nothing heavy is imported before a command runs, so `--help` answers at once."""

from __future__ import annotations

import os
import sys

import typer

from regard.cli import convert, demo, generate, show, tokenize, translate

app = typer.Typer(
    name="regard",
    help="The Transformer, whole: train, load, use and inspect all its well-known families.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("translate")(translate.translate)
app.command("generate")(generate.generate)
app.command("show")(show.show)
app.command("convert")(convert.convert)
app.command("tokenize")(tokenize.tokenize)

INTERRUPTED = 130


def main() -> None:
    """Run a command. 0: done, 1: the work failed, 2: the call was wrong, 130: stopped by an interrupt.

    Typer turns a closed pipe and an interrupt into exit codes of its own; they are given their meaning here.
    """
    try:
        app()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # whoever read our output has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        if end.code == INTERRUPTED:
            sys.stderr.write("stopped\n")
        raise
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
