"""Checks before a run starts: that everything a recipe names exists and fits together."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.data.example import ImageText
from regard.families.family import ConfigError
from regard.tokenization.io import TokenizerError
from regard.tokenization.tokenizer_trainer import check_vocabulary
from regard.training.optim.optimizer import freeze
from regard.training.recipe.data_format import data_format
from regard.training.recipe.data_pipeline import tokenizer_spec
from regard.training.recipe.network_factory import provisional_network_config
from regard.training.recipe.schema import NewTokenizerSection, PretrainedNetworkSection, Recipe, RecipeError
from regard.training.run import tensorboard
from regard.transformer import config
from regard.transformer.network import build_on_meta
from regard.transformer.suggestion import did_you_mean


def check_recipe(recipe: Recipe) -> None:
    """Raise `RecipeError` if a recipe cannot work, as far as that is known without reading its data."""
    metrics, best = recipe.task.metrics.names, recipe.training.best_metric
    if best not in metrics:
        raise RecipeError(
            f"training.best_metric: unknown metric {best!r} for task {recipe.task.name!r}"
            f"{did_you_mean(best, metrics)}; available: {', '.join(metrics)}"
        )
    for split, files in (("train", recipe.data.train), ("valid", recipe.data.valid)):
        _check_files(recipe, split, files)
    if isinstance(recipe.tokenizer, NewTokenizerSection):
        try:
            check_vocabulary(*tokenizer_spec(recipe, recipe.tokenizer))
        except TokenizerError as error:
            raise RecipeError(f"tokenizer.size: {error}") from None
    distillation = getattr(recipe.objective, "distillation", None)
    if distillation is not None and not Path(distillation.teacher).is_dir():
        raise RecipeError(
            f"objective.distillation.teacher: no directory {distillation.teacher} (paths are relative to the recipe)"
        )
    embeddings = getattr(recipe.network, "embeddings", None)
    if embeddings is not None and not Path(embeddings).is_file():
        raise RecipeError(f"network.embeddings: file not found: {embeddings} (paths are relative to the recipe)")
    resolve_device(recipe.training.device)
    if recipe.training.tensorboard:
        tensorboard.summary_writer_class()  # raises if TensorBoard is not installed
    loads_network = isinstance(recipe.network, PretrainedNetworkSection)
    if not loads_network or recipe.training.freeze:  # loading a network takes time: only if there is something to check
        network = build_on_meta(checked_network_config(recipe))
        try:
            freeze(network, recipe.training.freeze)
        except ValueError as error:
            raise RecipeError(str(error)) from None


def checked_network_config(recipe: Recipe) -> config.Network:
    """Return the config of the network before the data is read. Errors are raised as `RecipeError`."""
    if isinstance(recipe.network, PretrainedNetworkSection):
        return provisional_network_config(recipe)
    try:
        return provisional_network_config(recipe)
    except ConfigError as error:
        name = getattr(recipe.network, "family", "family")
        message = str(error).removeprefix("config.json: ")
        raise RecipeError(f"[network]: {message} (keys of the {name} config)") from None
    except ValueError as error:
        raise RecipeError(str(error)) from None


def resolve_device(name: str) -> torch.device:
    """Return the device of this name. Raise `RecipeError` if this machine does not have it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RecipeError(f"training.device = {name!r} is not available on this machine ({reason})") from None
    return device


def _check_files(recipe: Recipe, split: str, files: tuple[str, ...]) -> None:
    for file in files:
        if not Path(file).exists():
            raise RecipeError(f"data.{split}: file not found: {file} (paths are relative to the recipe)")
    if files and recipe.task.example is not ImageText:
        data_format(recipe, files, split)
