"""`regard doctor`: find problems in training data, by line number."""

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

from regard.progress import Progress

if TYPE_CHECKING:
    from regard.data.formats import Format
    from regard.doctor.data_recipe import DataRecipe
    from regard.doctor.doctor_report import DoctorReport

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


class MultiValueCommand(TyperCommand):
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
    files: Annotated[list[Path], typer.Argument(help="A recipe.toml, or with --task the training files.")],
    task: Annotated[Task | None, typer.Option(help="Task that the data is for.")] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="Validation files.")] = None,
    test: Annotated[list[Path] | None, typer.Option(help="Test files.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Tokenizer or model folder: count tokens and unknown tokens with it.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Maximum length in tokens, or in words without a tokenizer.")
    ] = None,
    script: Annotated[
        list[str] | None, typer.Option(help="Expected scripts: source=Latin target=Cyrillic, or text=Japanese.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Columns or keys of the fields: text=sentence label=3 (counted from 0).")
    ] = None,
    separator: Annotated[
        str | None, typer.Option(help="Separator of a table: tab, comma, space, semicolon, or a character.")
    ] = None,
    quoting: Annotated[QuotingChoice | None, typer.Option(help="Quoting of the cells of a table.")] = None,
    max_lines: Annotated[int, typer.Option(min=1, help="Maximum number of line numbers per finding.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Read FILES and report problems by line number, with a remedy for each.

    Exit codes: 0 no blocking problem, 1 blocking problems, 2 usage error.
    """
    from regard.doctor.examination import UsageError

    recipe = _recipe(files, task, valid, test)
    options = _Options(
        tokenizer=tokenizer or recipe.tokenizer,
        max_length=max_length or recipe.max_length,
        scripts=_parse_pairs("--script", script),
        columns={**recipe.columns, **_parse_pairs("--columns", columns)},
        separator=None if separator is None else SEPARATORS.get(separator, separator),
        quoting=quoting,
        max_lines=max_lines,
    )
    try:
        report = _examine(recipe, options)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        sys.stdout.write(json.dumps(report.to_json(), ensure_ascii=False) + "\n")
    else:
        _print(report)
    raise typer.Exit(0 if report.ok else 1)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """Options of the command, besides the files."""

    tokenizer: Path | None
    max_length: int | None
    scripts: Mapping[str, str]
    columns: Mapping[str, str | int]
    separator: str | None
    quoting: QuotingChoice | None
    max_lines: int


def _recipe(files: list[Path], task: Task | None, valid: list[Path] | None, test: list[Path] | None) -> DataRecipe:
    """Read the recipe, or build one from the command line."""
    from regard.doctor.data_recipe import DataRecipe, read_data_recipe
    from regard.doctor.split_reader import Split

    if task is not None:
        splits = {Split.TRAIN: files, Split.VALID: valid or [], Split.TEST: test or []}
        return DataRecipe(task=task.value, files={split: paths for split, paths in splits.items() if paths})
    if len(files) != 1 or files[0].suffix != ".toml":
        raise typer.BadParameter("expected --task, such as --task translate, or one recipe.toml")
    if not files[0].exists():
        raise typer.BadParameter(f"{files[0]}: file not found")
    return read_data_recipe(files[0])


def _parse_pairs(option: str, words: list[str] | None) -> dict[str, str]:
    """Parse `source=Latin target=Cyrillic` to a dictionary."""
    pairs = {}
    for word in words or ():
        name, sign, value = word.partition("=")
        if not (name and sign and value):
            raise typer.BadParameter(f"{option} {word}: expected name=value")
        pairs[name] = value
    return pairs


def _format(recipe: DataRecipe, options: _Options) -> Format:
    """The file format: by the options, else detected from the file extension; with the columns of the options."""
    from regard.data.example import EXAMPLE_TYPES
    from regard.data.formats import Cells, JsonLines, Quoting, Table
    from regard.data.reader import detect_format
    from regard.doctor.split_reader import Split

    columns = {name: int(value) if str(value).isdecimal() else value for name, value in options.columns.items()}
    if options.separator is not None:
        quoting = None if options.quoting is None else Quoting(options.quoting.value)
        by_index = columns and all(isinstance(value, int) for value in columns.values())
        cells = Cells.SAME if not by_index else Cells.REST if options.separator == " " else Cells.AT_LEAST
        return Table(columns=columns, separator=options.separator, quoting=quoting, cells=cells)
    match detect_format(EXAMPLE_TYPES[recipe.task], recipe.files[Split.TRAIN]):
        case Table():
            return Table(columns=columns, quoting=None if options.quoting is None else Quoting(options.quoting.value))
        case JsonLines():
            return JsonLines(keys={name: str(value) for name, value in options.columns.items()}, join=" ")
        case file_format:
            return file_format


def _examine(recipe: DataRecipe, options: _Options) -> DoctorReport:
    """Examine the files, with a progress bar on standard error."""
    from regard.doctor.examination import examine

    tokenizer = None
    if options.tokenizer is not None:
        from regard.tokenization.tokenizer_loader import load_tokenizer

        tokenizer = load_tokenizer(options.tokenizer)
    file_format = _format(recipe, options)
    paths = [path for files in recipe.files.values() for path in files if path.is_file()]
    compressed = any(path.suffix in (".gz", ".xz", ".zst") for path in paths)
    total = None if compressed else sum(path.stat().st_size for path in paths)
    with Progress("reading", total) as progress:
        return examine(
            recipe.task,
            recipe.files,
            file_format=file_format,
            scripts=options.scripts,
            tokenizer=tokenizer,
            max_length=options.max_length,
            max_lines=options.max_lines,
            on_bytes_read=progress.advance,
        )


def _print(report: DoctorReport) -> None:
    from rich.console import Console

    from regard.doctor.render import render

    render(report, Console(highlight=False))
