"""The data of a recipe as the doctor examines it: the files and the format of each split."""

from __future__ import annotations

from pathlib import Path

from regard.data.formats import Format
from regard.doctor.split_reader import Split
from regard.training.recipe.data_format import data_format
from regard.training.recipe.schema import DataRecipe


def data_files(recipe: DataRecipe) -> dict[Split, list[Path]]:
    """Return the files of each split, relative to the working directory if they are below it."""
    return {split: [_relative(Path(file)) for file in files] for split, files in _files(recipe).items()}


def data_formats(recipe: DataRecipe) -> dict[Split, Format]:
    """Return the format of each split, as training reads it."""
    return {split: data_format(recipe, files, split) for split, files in _files(recipe).items()}


def _files(recipe: DataRecipe) -> dict[Split, tuple[str, ...]]:
    data = recipe.data
    splits = {Split.TRAIN: data.train, Split.VALID: data.valid, Split.TEST: data.test}
    return {split: files for split, files in splits.items() if files}


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
