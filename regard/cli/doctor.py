"""`regard doctor`: find problems in training data, by line number."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.help_format import DocumentedCommand
from regard.progress import Progress
from regard.terminal import unescaped

if TYPE_CHECKING:
    from regard.doctor.doctor_report import DoctorReport
    from regard.training.recipe.schema import DataRecipe

MULTI_VALUE_OPTIONS = ("--valid", "--test", "--script", "--columns")
SEPARATORS = {"tab": "\t", "comma": ",", "space": " ", "blank": " ", "semicolon": ";"}


class Task(enum.StrEnum):
    """Task that the data is for."""

    TRANSLATE = "translate"
    SUMMARIZE = "summarize"
    GENERATE = "generate"
    FILL = "fill"
    CLASSIFY = "classify"
    TAG = "tag"
    ANSWER = "answer"
    EMBED = "embed"


class QuotingChoice(enum.StrEnum):
    """Meaning of a quotation mark at the start of a cell."""

    CSV = "csv"
    NONE = "none"


class HeaderChoice(enum.StrEnum):
    """Whether the first line of a table names its columns."""

    GUESS = "guess"
    FIRST_LINE = "first line"
    NONE = "none"


class CellsChoice(enum.StrEnum):
    """How many cells a row of a table has."""

    SAME = "same"
    AT_LEAST = "at least"
    REST = "rest"


class UnitChoice(enum.StrEnum):
    """The unit of plain text that is one document."""

    LINE = "line"
    PARAGRAPH = "paragraph"
    FILE = "file"


class SchemeChoice(enum.StrEnum):
    """How the tags of CoNLL columns mark entities."""

    BIO = "BIO"
    IOB1 = "IOB1"
    BIOES = "BIOES"
    BILOU = "BILOU"
    LENIENT = "lenient"
    PLAIN = "plain"


class MultiValueCommand(DocumentedCommand):
    """A command with options that take several values, up to the next option: `--valid val.en val.de`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite `--valid a b` as `--valid a --valid b`, which the parser supports."""
        return super().parse_args(ctx, repeat_option_names(args))


def repeat_option_names(words: Sequence[str]) -> list[str]:
    """Repeat the name of an option with several values before each of its values."""
    result: list[str] = []
    option = None
    for word in words:
        if word.startswith("-"):
            option = word if word in MULTI_VALUE_OPTIONS else None
            result += [] if option else [word]
        else:
            result += [option, word] if option else [word]
    return result


def doctor(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="A recipe.toml, or with --task the training files.")
    ],
    task: Annotated[Task | None, typer.Option(help="Task that the data is for.")] = None,
    valid: Annotated[list[Path] | None, typer.Option(metavar="FILE...", help="Validation files.")] = None,
    test: Annotated[list[Path] | None, typer.Option(metavar="FILE...", help="Test files.")] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Tokenizer or model folder: count tokens and unknown tokens with it."),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Maximum length in tokens, or in words without a tokenizer.")
    ] = None,
    script: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=SCRIPT...", help="Expected scripts: source=Latin target=Cyrillic, or text=Japanese."
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=COLUMN...", help="Columns or keys of the fields: text=sentence label=3 (counted from 0)."
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(metavar="CHARACTER", help="Separator of a table: tab, comma, space, semicolon, or a character."),
    ] = None,
    quoting: Annotated[QuotingChoice | None, typer.Option(help="Quoting of the cells of a table.")] = None,
    header: Annotated[HeaderChoice | None, typer.Option(help="Whether a table has a header. [guess]")] = None,
    cells: Annotated[CellsChoice | None, typer.Option(help="Number of cells of a row of a table. [same]")] = None,
    join: Annotated[str | None, typer.Option(help="JSON Lines: separator that joins a list of texts to one.")] = None,
    scheme: Annotated[SchemeChoice | None, typer.Option(help="CoNLL: the scheme of the tags. [detected]")] = None,
    unit: Annotated[UnitChoice | None, typer.Option(help="Plain text: the unit that is one document. [line]")] = None,
    max_lines: Annotated[int, typer.Option(min=1, help="Maximum number of line numbers per finding.")] = 5,
    fix: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write a cleaned copy and a log of all changes to this folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Read FILES and report problems by line number, with a remedy for each.

    Exit codes: 0 no blocking problem, 1 blocking problems, 2 usage error.
    """
    from regard.doctor.examination import UsageError

    choices = {"quoting": quoting, "header": header, "cells": cells, "unit": unit, "scheme": scheme}
    keys: dict[str, Any] = {name: choice.value for name, choice in choices.items() if choice is not None}
    if separator is not None:
        keys["separator"] = SEPARATORS.get(separator, separator)
    if join is not None:
        keys["join"] = join
    if task is not None:
        splits = {"train": files, "valid": valid, "test": test}
        keys |= {name: [str(path) for path in paths] for name, paths in splits.items() if paths}
    recipe = _load_recipe(files, task, keys, _parse_columns(columns))
    options = _Options(
        tokenizer=tokenizer, max_length=max_length, scripts=_parse_pairs("--script", script), max_lines=max_lines
    )
    try:
        report = _examine(recipe, options) if fix is None else _fix(recipe, options, fix)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        sys.stdout.write(json.dumps(report.to_json(), ensure_ascii=False) + "\n")
    else:
        _print(report)
    raise typer.Exit(0 if report.ok else 1)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """Options of the command that are not keys of a recipe's data section."""

    tokenizer: Path | None
    max_length: int | None
    scripts: Mapping[str, str]
    max_lines: int


def _load_recipe(
    files: list[Path], task: Task | None, keys: Mapping[str, Any], columns: Mapping[str, str | int]
) -> DataRecipe:
    """Read the recipe, with the keys of its data section that were given as options, or make one of the options."""
    from regard.tasks.registry import TASKS
    from regard.training.recipe.schema import DataRecipe, load_data_recipe

    if task is not None:
        values = {"task": task.value, "data": {**keys, "columns": columns}}
        return DataRecipe.model_validate(values, context=TASKS)
    if len(files) != 1 or files[0].suffix != ".toml":
        raise typer.BadParameter("expected --task, such as --task translate, or one recipe.toml")
    if not files[0].exists():
        raise typer.BadParameter(f"{files[0]}: file not found")
    overrides = {**keys, **{f"columns.{name}": column for name, column in columns.items()}}
    return load_data_recipe(files[0], {f"data.{name}": value for name, value in overrides.items()}, tasks=TASKS)


def _parse_pairs(option: str, words: list[str] | None) -> dict[str, str]:
    """Parse `source=Latin target=Cyrillic` to a dictionary."""
    pairs = {}
    for word in words or ():
        name, sign, value = word.partition("=")
        if not (name and sign and value):
            raise typer.BadParameter(f"{option} {word}: expected name=value")
        pairs[name] = value
    return pairs


def _parse_columns(words: list[str] | None) -> dict[str, str | int]:
    """Parse `text=sentence label=3`: a column is a name or a number."""
    pairs = _parse_pairs("--columns", words)
    return {name: int(value) if value.removeprefix("-").isdecimal() else value for name, value in pairs.items()}


def _examine(recipe: DataRecipe, options: _Options) -> DoctorReport:
    """Examine the files, with a progress bar on standard error."""
    from regard.doctor.examination import examine
    from regard.doctor.recipe_data import data_files, data_formats
    from regard.training.recipe.data_format import label_type
    from regard.training.recipe.schema import PretrainedTokenizerSection

    tokenizer, tokenizer_path = None, options.tokenizer
    if tokenizer_path is None and isinstance(recipe.tokenizer, PretrainedTokenizerSection):
        tokenizer_path = Path(recipe.tokenizer.load)
    if tokenizer_path is not None:
        from regard.tokenization.tokenizer_loader import load_tokenizer

        tokenizer = load_tokenizer(tokenizer_path)
    splits = data_files(recipe)
    paths = [path for files in splits.values() for path in files if path.is_file()]
    compressed = any(path.suffix in (".gz", ".xz", ".zst") for path in paths)
    total = None if compressed else sum(path.stat().st_size for path in paths)
    with Progress("reading", total) as progress:
        return examine(
            recipe.task,
            splits,
            file_format=data_formats(recipe),
            label_type=label_type(recipe),
            scripts=options.scripts,
            tokenizer=tokenizer,
            max_length=options.max_length or recipe.data.max_length,
            max_lines=options.max_lines,
            on_bytes_read=progress.advance,
        )


def _fix(recipe: DataRecipe, options: _Options, folder: Path) -> DoctorReport:
    """Write a cleaned copy, say what was done, and return the report of the copy."""
    from regard.doctor.fix import ALL_LINES, CHANGES_FILE, write_fixed
    from regard.doctor.recipe_data import data_files, data_formats

    report = _examine(recipe, replace(options, max_lines=ALL_LINES))
    summary = write_fixed(report, data_files(recipe), data_formats(recipe), folder)
    sys.stderr.write(
        f"{folder}: a cleaned copy. Of {summary.read:,} lines {summary.removed:,} were removed and {summary.changed:,} "
        f"changed: see {folder / CHANGES_FILE}. The report is that of the copy.\n"
    )
    files = {split.value: tuple(map(str, paths)) for split, paths in summary.files.items()}
    return _examine(recipe.model_copy(update={"data": recipe.data.model_copy(update=files)}), options)


def _print(report: DoctorReport) -> None:
    from rich.console import Console

    from regard.doctor.render import render

    render(report, Console(file=unescaped(sys.stdout), highlight=False))
