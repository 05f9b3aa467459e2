"""Names that version 0.1 used in recipes, checkpoints and metrics: still read, never written.

Keys of a recipe are named by their dotted address, `training.batch_tokens`. `upgrade` renames the keys and values of a
whole recipe, `upgrade_overrides` those of `key=value` overrides. A recipe and its overrides are upgraded separately and
merged afterwards, so an override replaces the value of the file whichever names the two use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

RENAMED_KEYS = {
    "folder": "output",
    "data.length": "max_length",
    "data.long": "too_long",
    "network.length": "max_length",
    "objective.smoothing": "label_smoothing",
    "objective.agreement": "rdrop",
    "objective.agreement_from": "rdrop_start_epoch",
    "objective.splitting": "bpe_dropout",
    "objective.share": "mask_probability",
    "objective.whole_words": "whole_word_masking",
    "objective.teacher": "distillation",
    "objective.distillation.load": "teacher",
    "objective.distillation.share": "alpha",
    "training.tokens": "batch_tokens",
    "training.accumulate": "gradient_accumulation_steps",
    "training.clip": "max_grad_norm",
    "training.ema": "ema_decay",
    "training.average": "average_checkpoints",
    "training.report_every": "log_every",
    "training.keep": "keep_checkpoints",
    "training.best": "best_metric",
    "training.recompute": "gradient_checkpointing",
    "training.optimizer.rate": "lr",
    "training.optimizer.epsilon": "eps",
    "training.optimizer.decay": "weight_decay",
    "training.optimizer.rest": "adamw",
    "training.optimizer.adamw.rate": "lr",
    "training.optimizer.adamw.epsilon": "eps",
    "training.optimizer.adamw.decay": "weight_decay",
    "training.schedule.warmup": "warmup_steps",
    "training.schedule.end": "min_lr_ratio",
}
"""The old address of a key, and its new name. Parent tables have their new names: `objective.teacher.load` is listed as
`objective.distillation.load`, so that a table with the new name may still have old keys."""

RENAMED_VALUES = {
    "data.too_long": {"cut": "truncate", "refuse": "error"},
    "training.best_metric": {"exact": "exact_match"},
    "training.schedule": {"inverse_root": "inverse_sqrt"},
    "training.schedule.kind": {"inverse_root": "inverse_sqrt"},
}
"""The new address of a key, and its old values with the new ones."""

RENAMED_METRICS = {
    "rate": "lr",
    "gradient": "grad_norm",
    "mean_of": "averaged_steps",
    "valid_exact": "valid_exact_match",
}
"""Keys of `metrics.jsonl` and of `best/run.json`."""

RENAMED_PROGRESS = {
    "smooth": "smoothed_loss",
    "lowest": "lowest_loss",
    "lowest_step": "lowest_loss_step",
    "best": "best_value",
    "waited": "evaluations_since_best",
    "scores": "metric_by_step",
    "metrics": "metrics_bytes",
}
"""Keys of `progress` in `state.json`."""

RENAMED_ENVIRONMENT = {"compiled parts": "native library"}
"""Keys of `machine` in `state.json`; the table is called `environment` now."""


def upgrade(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Rename the keys and values of version 0.1 in a recipe.

    Returns a new recipe, and what was renamed: the old name by the new one, of keys (`training.batch_tokens`) and of
    values (`training.schedule = "inverse_sqrt"`). A key that appears in the recipe under both names keeps its old
    name, and validation reports it.
    """
    renamed: dict[str, str] = {}
    return _upgrade_table(values, "", "", renamed), renamed


def upgrade_overrides(overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Rename the dotted keys and the values of overrides. Of two names for one key, the later one wins."""
    renamed: dict[str, str] = {}
    result: dict[str, Any] = {}
    for old, value in overrides.items():
        new = upgrade_address(old)
        if new != old:
            renamed[new] = old
        result[new] = _upgrade_value(value, old, new, renamed)
    return result, renamed


def upgrade_address(address: str) -> str:
    """Rename a dotted key: `training.tokens` becomes `training.batch_tokens`."""
    table = ""
    for key in address.split("."):
        table += f"{RENAMED_KEYS.get(f'{table}{key}', key)}."
    return table.removesuffix(".")


def original_address(address: str, renamed: Mapping[str, str]) -> str:
    """Return the address that a key has in a file, given what `upgrade` renamed in it."""
    keys = address.split(".")
    for end in range(len(keys), 0, -1):
        if (table := ".".join(keys[:end])) in renamed:
            return ".".join([renamed[table], *keys[end:]])
    return address


def describe_renamed(renamed: Mapping[str, str]) -> str:
    """Name each old key or value and its new name, in one line."""
    return ", ".join(f"{old} is now {new}" for new, old in renamed.items())


def upgrade_objective(text: str) -> str:
    """Rename the keys of an objective in JSON, as checkpoints of version 0.1 store it."""
    values, _ = upgrade({"objective": json.loads(text)})
    return json.dumps(values["objective"], sort_keys=True)


def upgrade_state(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the environment and the progress in the values of `state.json`, under their new names."""
    if "machine" not in values:
        return values["environment"], values["progress"]
    progress = {RENAMED_PROGRESS.get(name, name): value for name, value in values["progress"].items()}
    environment = {RENAMED_ENVIRONMENT.get(name, name): value for name, value in values["machine"].items()}
    if "objective" in environment:
        environment["objective"] = upgrade_objective(environment["objective"])
    if "best" in environment:
        metric, separator, data = environment["best"].partition(" on ")
        metric = RENAMED_VALUES["training.best_metric"].get(metric, metric)
        environment["best"] = metric + separator + data
    return environment, progress


def upgrade_metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keys of a line of `metrics.jsonl`, or of `best/run.json`."""
    return {RENAMED_METRICS.get(name, name): value for name, value in values.items()}


def _upgrade_table(table: Mapping[str, Any], old: str, new: str, renamed: dict[str, str]) -> dict[str, Any]:
    """Rename in one table. `old` and `new` are its address with a final dot, or empty for the whole recipe."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        name = RENAMED_KEYS.get(f"{new}{key}", key)
        if name in table:
            name = key
        if name != key:
            renamed[f"{new}{name}"] = f"{old}{key}"
        result[name] = _upgrade_value(value, f"{old}{key}", f"{new}{name}", renamed)
    return result


def _upgrade_value(value: Any, old: str, new: str, renamed: dict[str, str]) -> Any:
    if isinstance(value, Mapping):
        return _upgrade_table(value, f"{old}.", f"{new}.", renamed)
    values = RENAMED_VALUES.get(new, {})
    if isinstance(value, str) and value in values:
        renamed[f'{new} = "{values[value]}"'] = f'{old} = "{value}"'
        return values[value]
    return value
