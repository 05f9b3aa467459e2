"""`regard doctor`: what is wrong with this data, by line number."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from regard.data.formats import Format
    from regard.doctor.data_recipe import Recipe
    from regard.doctor.doctor_report import Report

SEVERAL = ("--valid", "--test", "--script", "--columns")
SEPARATORS = {"tab": "\t", "comma": ",", "blank": " ", "semicolon": ";"}


class Task(enum.StrEnum):
    """What a network is trained for."""

    TRANSLATE = "translate"
    SUMMARIZE = "summarize"
    GENERATE = "generate"
    FILL = "fill"
    CLASSIFY = "classify"
    TAG = "tag"
    ANSWER = "answer"
    EMBED = "embed"


class Quoted(enum.StrEnum):
    """What a quotation mark at the start of a cell means."""

    CSV = "csv"
    NONE = "none"


class SeveralValues(TyperCommand):
    """A command some of whose options take all the words up to the next option: `--valid val.en val.de`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write `--valid a b` as `--valid a --valid b`, which the parser knows."""
        return super().parse_args(ctx, spread(args))


def spread(words: Sequence[str]) -> list[str]:
    """The words of a call, with the name of an option that takes several before each of its values."""
    told: list[str] = []
    option = None
    for word in words:
        if word.startswith("-"):
            option = word if word in SEVERAL else None
            told += [] if option else [word]
        else:
            told += [option, word] if option else [word]
    return told


def doctor(
    files: Annotated[list[Path], typer.Argument(help="A recipe.toml; or, with --task, the training files.")],
    task: Annotated[Task | None, typer.Option(help="What the data is for.")] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="The validation files.")] = None,
    test: Annotated[list[Path] | None, typer.Option(help="The test files.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Count its tokens, and what it does not know.")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Texts would be cut here: tokens, or words.")] = None,
    script: Annotated[
        list[str] | None, typer.Option(help="The script of a side: source=Latin target=Cyrillic; or text=Japanese.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Columns or keys of the fields: text=sentence label=3 (from 0).")
    ] = None,
    separator: Annotated[str | None, typer.Option(help="Of a table: tab, comma, blank, or a character.")] = None,
    quoting: Annotated[Quoted | None, typer.Option(help="Of a table: whether cells are quoted.")] = None,
    lines: Annotated[int, typer.Option(min=1, help="How many line numbers to tell of each finding.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON object.")] = False,
) -> None:
    """Read FILES and say what is wrong with them, by line number, and what to do.

    The exit code says whether training should go ahead: 0 yes, 1 no, 2 the call was wrong.
    """
    from regard.doctor.examination import CallError

    recipe = _recipe(files, task, valid, test)
    options = _Options(
        tokenizer=tokenizer or recipe.tokenizer,
        length=length or recipe.length,
        scripts=_named("--script", script),
        columns={**recipe.columns, **_named("--columns", columns)},
        separator=None if separator is None else SEPARATORS.get(separator, separator),
        quoting=quoting,
        lines=lines,
    )
    try:
        report = _examine(recipe, options)
    except CallError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(), ensure_ascii=False) + "\n")
    else:
        _print(report)
    raise typer.Exit(0 if report.go_ahead else 1)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What was asked for besides the files."""

    tokenizer: Path | None
    length: int | None
    scripts: Mapping[str, str]
    columns: Mapping[str, str | int]
    separator: str | None
    quoting: Quoted | None
    lines: int


def _recipe(files: list[Path], task: Task | None, valid: list[Path] | None, test: list[Path] | None) -> Recipe:
    """The recipe that was given, or one made of the call."""
    from regard.doctor.data_recipe import Recipe, read_recipe
    from regard.doctor.tolerant_reader import Split

    if task is not None:
        sets = {Split.TRAIN: files, Split.VALID: valid or [], Split.TEST: test or []}
        return Recipe(task=task.value, files={split: paths for split, paths in sets.items() if paths})
    if len(files) != 1 or files[0].suffix != ".toml":
        raise typer.BadParameter("say what the data is for, as --task translate; or give one recipe.toml")
    if not files[0].exists():
        raise typer.BadParameter(f"{files[0]}: there is no such file")
    return read_recipe(files[0])


def _named(option: str, words: list[str] | None) -> dict[str, str]:
    """`source=Latin target=Cyrillic` by name."""
    named = {}
    for word in words or ():
        name, sign, value = word.partition("=")
        if not (name and sign and value):
            raise typer.BadParameter(f"{option} {word}: expected name=value, as source=…")
        named[name] = value
    return named


def _form(recipe: Recipe, options: _Options) -> Format:
    """The format of the files, told by their endings, with the columns that were asked for."""
    from regard.data.example import TASKS
    from regard.data.formats import Cells, JsonLines, Quoting, Table
    from regard.data.reader import format_of
    from regard.doctor.tolerant_reader import Split

    numbers = {name: int(value) if str(value).isdecimal() else value for name, value in options.columns.items()}
    if options.separator is not None:
        quoting = None if options.quoting is None else Quoting(options.quoting.value)
        by_number = numbers and all(isinstance(value, int) for value in numbers.values())
        cells = Cells.SAME if not by_number else Cells.REST if options.separator == " " else Cells.AT_LEAST
        return Table(columns=numbers, separator=options.separator, quoting=quoting, cells=cells)
    match format_of(TASKS[recipe.task], recipe.files[Split.TRAIN]):
        case Table():
            return Table(columns=numbers, quoting=None if options.quoting is None else Quoting(options.quoting.value))
        case JsonLines():
            return JsonLines(keys={name: str(value) for name, value in options.columns.items()}, join=" ")
        case other:
            return other


def _examine(recipe: Recipe, options: _Options) -> Report:
    """Examine, with a bar on standard error while files are read."""
    from rich.console import Console
    from rich.progress import Progress

    from regard.doctor.examination import examine

    tokenizer = None
    if options.tokenizer is not None:
        from regard.tokenization.tokenizer_loader import load

        tokenizer = load(options.tokenizer)
    form = _form(recipe, options)
    paths = [path for files in recipe.files.values() for path in files if path.is_file()]
    packed = any(path.suffix in (".gz", ".xz", ".zst") for path in paths)
    total = None if packed else sum(path.stat().st_size for path in paths)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("reading", total=total)
        return examine(
            recipe.task,
            recipe.files,
            form=form,
            scripts=options.scripts,
            tokenizer=tokenizer,
            length=options.length,
            shown=options.lines,
            tell=lambda read: progress.advance(bar, read),
        )


def _print(report: Report) -> None:
    from rich.console import Console

    from regard.doctor.render import render

    render(report, Console(highlight=False))
