"""Recipes with the tasks of the package, and training without task metrics."""

from functools import partial
from pathlib import Path

from regard.evaluation.train import default_run_dir
from regard.tasks.registry import TASKS
from regard.training.recipe import schema
from regard.training.recipe.preflight import check_recipe
from regard.training.run.run import run_training

load_recipe = partial(schema.load_recipe, tasks=TASKS)
parse_recipe = partial(schema.parse_recipe, tasks=TASKS)


def train(recipe, overrides=(), *, output=None, **more):
    """Train as `regard.train` does, but without its metrics unless `compute_metrics` is passed."""
    loaded = recipe if isinstance(recipe, schema.Recipe) else load_recipe(recipe, overrides)
    check_recipe(loaded)
    return run_training(loaded, Path(output or loaded.output or default_run_dir(recipe)), **more)
