"""The file format that the `[data]` section of a recipe describes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.data.example import Pair
from regard.data.fields import OPTIONAL_FIELDS, REQUIRED_FIELDS, LabelType
from regard.data.formats import Cells, Conll, Format, Header, JsonLines, Quoting, Scheme, Table, Text, Unit
from regard.data.reader import detect_format
from regard.tokenization.text_files import DataError
from regard.training.recipe.objective_section import MultiLabelConfig, RegressionConfig
from regard.training.recipe.schema import DataRecipe, DataSection, RecipeError
from regard.transformer.suggestion import did_you_mean


def data_format(recipe: DataRecipe, files: Sequence[str], split: str = "train") -> Format:
    """Return the format of the files of a split: by the section's keys, else by the extension of the first file."""
    data, example_type = recipe.data, recipe.task.example
    try:
        file_format = Table() if data.separator else detect_format(example_type, [Path(file) for file in files])
    except DataError:
        parallel = ", or two parallel text files" if example_type is Pair else ""
        raise RecipeError(
            f"data.{split}: unknown file format: {files[0]}. Use tables (.tsv, .csv) or JSON Lines (.jsonl) with "
            f"{' and '.join(REQUIRED_FIELDS[example_type])}{parallel}"
        ) from None
    _check_columns(recipe, file_format, files)
    match file_format:
        case Table():
            return _table(data)
        case JsonLines():
            return JsonLines(keys={name: str(key) for name, key in data.columns.items()}, join=data.join)
        case Conll():
            scheme = None if data.scheme is None else Scheme(data.scheme)
            return Conll(word=_column_number(data, "word", 0), tag=_column_number(data, "tag", -1), scheme=scheme)
        case Text():
            return Text(unit=Unit(data.unit))
    return file_format


def label_type(recipe: DataRecipe) -> LabelType:
    """Return the type of the labels in the data of a recipe."""
    match recipe.objective:
        case RegressionConfig():
            return LabelType.SCORE
        case MultiLabelConfig():
            return LabelType.CLASSES
    return LabelType.SCORE if recipe.task.name == "embed" else LabelType.CLASS


def _table(data: DataSection) -> Table:
    by_number = bool(data.columns) and all(isinstance(column, int) for column in data.columns.values())
    cells = Cells(data.cells or ("rest" if data.separator == " " and by_number else "same"))
    quoting = data.quoting or ("none" if cells is Cells.REST else None)
    return Table(
        columns=data.columns,
        separator=data.separator,
        quoting=None if quoting is None else Quoting(quoting),
        header=Header(data.header),
        cells=cells,
    )


def _column_number(data: DataSection, name: str, default: int) -> int:
    value = data.columns.get(name, default)
    if not isinstance(value, int):
        raise RecipeError(
            f"data.columns.{name} is {value!r}: columns of this format have no names, give a number from 0"
        )
    return value


def _check_columns(recipe: DataRecipe, file_format: Format, files: Sequence[str]) -> None:
    example_type = recipe.task.example
    match file_format:
        case Table() | JsonLines():
            allowed = (*REQUIRED_FIELDS[example_type], *OPTIONAL_FIELDS[example_type])
        case Conll():
            allowed = ("word", "tag")
        case _:
            allowed = ()
    for name in recipe.data.columns:
        if not allowed:
            raise RecipeError(f"data.columns: {files[0]} is not a table, so it has no columns: remove the key")
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise RecipeError(f"data.columns: task {recipe.task.name!r} has {', '.join(allowed)}, not {name!r}{hint}")
