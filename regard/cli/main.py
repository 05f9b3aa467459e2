"""`regard`: the commands, gathered. Nothing heavy is imported before a command runs, so `--help` answers at once."""

from __future__ import annotations

import sys

import typer

from regard.cli import convert, demo, plot, recipes, show, train

app = typer.Typer(
    name="regard",
    help="The Transformer, whole: train, load, use and inspect all its well-known families.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("show")(show.show)
app.command("convert")(convert.convert)
app.command("recipes")(recipes.recipes)
app.command("train")(train.train)
app.command("plot")(plot.plot)


def main() -> None:
    """Run a command. 0: done, 1: the work failed, 2: the call was wrong."""
    try:
        app()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
