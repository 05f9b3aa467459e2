"""What is checked before anything is read or made: that all that a recipe names is there, and fits together."""

from __future__ import annotations

import difflib
from pathlib import Path

import torch

from regard.data.example import TASKS, Pair
from regard.data.fields import NEEDED, OPTIONAL
from regard.data.formats import Conll, JsonLines, Table
from regard.data.reader import format_of
from regard.families.family import ConfigError
from regard.tokenization.io import TokenizerError
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer_trainer import check as check_vocabulary
from regard.training.optim.optimizer import freeze
from regard.training.recipe.data_pipeline import vocabulary_of
from regard.training.recipe.network_factory import supposed
from regard.training.recipe.schema import Load, NewTokenizer, Recipe, RecipeError
from regard.training.run import tensorboard
from regard.transformer import config
from regard.transformer.network import empty


def check(chosen: Recipe) -> None:
    """Stop where a recipe cannot be followed, as far as that is known without reading its data."""
    for part, files in (("train", chosen.data.train), ("valid", chosen.data.valid)):
        _check_files(chosen, part, files)
    if isinstance(chosen.tokenizer, NewTokenizer):
        try:
            check_vocabulary(*vocabulary_of(chosen, chosen.tokenizer))
        except TokenizerError as error:
            raise RecipeError(f"tokenizer.size: {error}") from None
    teacher = getattr(chosen.objective, "teacher", None)
    if teacher is not None and not Path(teacher.load).is_dir():
        raise RecipeError(f"objective.teacher: there is no folder {teacher.load}. It is looked for beside the recipe")
    check_device(chosen.training.device)
    if chosen.training.tensorboard:
        tensorboard.writer()  # is it installed?
    if not isinstance(chosen.network, Load) or chosen.training.freeze:  # to look into a folder takes its time
        network = empty(design_of(chosen))
        try:
            freeze(network, chosen.training.freeze)
        except ValueError as error:
            raise RecipeError(str(error)) from None


def design_of(chosen: Recipe) -> config.Network:
    """The design of the network, as far as it is known: vocabularies as large as they may become, and a few labels."""
    if isinstance(chosen.network, Load):
        return supposed(chosen)
    try:
        return supposed(chosen)
    except ConfigError as error:
        name = getattr(chosen.network, "family", "its family")
        raise RecipeError(f"[network]: {str(error).removeprefix('config.json: ')} (as {name} calls them)") from None
    except ValueError as error:
        raise RecipeError(str(error)) from None


def check_device(name: str) -> torch.device:
    """The device of this name. Stop if this machine has none."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RecipeError(f"training.device is {name!r}, which this machine does not have ({reason})") from None
    return device


def _check_files(chosen: Recipe, part: str, files: tuple[str, ...]) -> None:
    for file in files:
        if not Path(file).exists():
            raise RecipeError(f"data.{part}: there is no {file}. Files are looked for beside the recipe")
    kind = TASKS[chosen.task]
    if not files or chosen.data.separator:
        return
    try:
        form = format_of(kind, [Path(file) for file in files])
    except DataError:
        two = ", or two files, line by line" if kind is Pair else ""
        raise RecipeError(
            f"data.{part}: the ending of {files[0]} does not tell how its examples are written: give tables (.tsv, "
            f".csv) or JSON Lines (.jsonl) with {' and '.join(NEEDED[kind])}{two}"
        ) from None
    match form:
        case Table() | JsonLines():
            known = (*NEEDED[kind], *OPTIONAL[kind])
        case Conll():
            known = ("word", "tag")
        case _:
            known = ()
    for name in chosen.data.columns:
        if not known:
            raise RecipeError(f"data.columns: {files[0]} is no table, and has no columns; leave the key out")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise RecipeError(f"data.columns: task {chosen.task!r} has {', '.join(known)}, not {name!r}{hint}")
