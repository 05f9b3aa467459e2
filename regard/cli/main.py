"""`regard`: the commands, gathered. Nothing heavy is imported before a command runs, so `--help` answers at once."""

from __future__ import annotations

import os
import sys

import typer

from regard.cli import convert, demo, generate, show, translate

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


def main() -> None:
    """Run a command. 0: done, 1: the work failed, 2: the call was wrong."""
    try:
        app()
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
