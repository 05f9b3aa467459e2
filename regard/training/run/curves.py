"""Plot the metrics of training runs, one or several in the same panels."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.figure import Figure, Line, Panel, Scale, write_figure
from regard.files import read_text
from regard.training.recipe import toml
from regard.training.recipe.legacy_keys import upgrade
from regard.training.run.run_dir import RunDir, read_metrics

Points = list[tuple[float, float]]
NOT_PLOTTED = ("step", "epoch", "averaged_steps")
SHARED_PANELS = {"valid_loss": "loss"}
"""Metrics that are drawn in the panel of another."""
LAST_PANELS = ("lr", "grad_norm")
"""Metrics whose panels come last."""
CAPTION_WIDTH = 150
LOSS_UNITS = {
    "masked": "nats per masked token",
    "classify": "nats per text",
    "tag": "nats per word",
    "span": "nats per position",
}
"""What the loss is a mean over, by the kind of the objective. All others: tokens."""


@dataclass(frozen=True)
class MetricAxis:
    """How the panel of a metric is drawn."""

    title: str
    y_label: str
    scale: Scale = Scale.LINEAR


AXES = {
    "loss": MetricAxis("Loss", "nats per token"),
    "valid_perplexity": MetricAxis("Validation perplexity", "per token", Scale.LOG),
    "valid_word_perplexity": MetricAxis("Validation perplexity by word", "per word", Scale.LOG),
    "valid_accuracy": MetricAxis("Validation accuracy", "fraction correct"),
    "valid_bleu": MetricAxis("Validation BLEU", "points of 100"),
    "valid_chrf": MetricAxis("Validation chrF", "points of 100"),
    "valid_macro_f1": MetricAxis("Validation macro F1", "mean over labels, 0 to 1"),
    "valid_f1": MetricAxis("Validation F1", "0 to 1"),
    "valid_precision": MetricAxis("Validation precision", "0 to 1"),
    "valid_recall": MetricAxis("Validation recall", "0 to 1"),
    "valid_exact_match": MetricAxis("Validation exact match", "fraction of answers"),
    "lr": MetricAxis("Learning rate", "lr"),
    "grad_norm": MetricAxis("Gradient norm, before clipping", "L2 norm", Scale.LOG),
}


@dataclass(frozen=True)
class RunCurves:
    """The curves of a run, with what its recipe and its best model say about them."""

    path: Path
    name: str

    @cached_property
    def points(self) -> dict[str, Points]:
        """The points of each metric."""
        file = self.path / "metrics.jsonl"
        points = read_curves(read_metrics(file))
        if not points:
            raise ValueError(f"{file} is empty: nothing has been logged yet")
        return points

    @cached_property
    def recipe(self) -> Mapping[str, Any]:
        """The recipe of the run; empty if it is missing or unreadable."""
        try:
            return upgrade(toml.parse(read_text(self.path / "recipe.toml")))[0]
        except (OSError, ValueError):
            return {}

    @cached_property
    def best(self) -> tuple[str, int, float | None] | None:
        """Metric, step and value of the best model, if there is one and it is not an average."""
        info = RunDir(self.path).best_info()
        if "step" not in info or "averaged_steps" in info:
            return None
        metric = self.recipe.get("training", {}).get("best_metric", "loss")
        return f"valid_{metric}", info["step"], info.get("value")

    def describe(self) -> str:
        """Return the name of the run, with its best step."""
        if self.best is None:
            return self.name
        metric, step, value = self.best
        result = "" if value is None else f", {metric.removeprefix('valid_').replace('_', ' ')} {value:.4g}"
        return f"{self.name} (best: step {step:,}{result})"

    def highlight(self, metric: str) -> tuple[float, float] | None:
        """Return the point of the best model on the curve of the metric that selected it."""
        if self.best is None or self.best[0] != metric:
            return None
        return next((point for point in self.points.get(metric, []) if point[0] == self.best[1]), None)

    def regularization(self) -> list[str]:
        """Name what is added to the training loss alone."""
        objective, network = self.recipe.get("objective", {}), self.recipe.get("network", {})
        dropout = network.get("dropout", "" if network else 0)
        parts = [f"dropout {dropout}".strip()] if dropout != 0 else []
        names = {"label_smoothing": "label smoothing", "rdrop": "R-Drop", "bpe_dropout": "BPE-dropout"}
        parts += [f"{name} {objective[key]:g}" for key, name in names.items() if objective.get(key)]
        return [*parts, "distillation"] if objective.get("distillation") else parts


def plot_curves(runs: Path | Sequence[Path], target: Path) -> None:
    """Plot all metrics of one or several runs: the losses in one panel, every other metric in its own."""
    paths = [runs] if isinstance(runs, Path) else list(runs)
    curves = [RunCurves(path, name) for path, name in zip(paths, distinct_names(paths), strict=True)]
    metrics = dict.fromkeys(name for run in curves for name in run.points)
    groups: dict[str, list[str]] = {}
    for name in sorted(metrics, key=LAST_PANELS.__contains__):
        groups.setdefault(SHARED_PANELS.get(name, name), []).append(name)
    several = len(curves) > 1
    figure = Figure(
        title=f"{len(curves)} training runs" if several else curves[0].describe(),
        panels=[_make_panel(name, members, curves) for name, members in groups.items()],
        key=[run.describe() for run in curves] if several else (),
        caption=_make_caption(curves, metrics),
    )
    write_figure(figure, target)


def read_curves(lines: Iterable[Mapping[str, Any]]) -> dict[str, Points]:
    """Return the finite points of each metric. Averaged checkpoints are not points of a curve."""
    points: dict[str, Points] = {}
    for line in lines:
        for name, value in line.items():
            if name not in NOT_PLOTTED and "averaged_steps" not in line and math.isfinite(value):
                points.setdefault(name, []).append((float(line["step"]), float(value)))
    return points


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return the names of folders, each with as many of its parents as are needed to tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"{paths[0]} is there twice: give different runs")


def _make_panel(name: str, members: Sequence[str], runs: Sequence[RunCurves]) -> Panel:
    axis = AXES.get(name, MetricAxis(name.replace("valid_", "Validation ").replace("_", " "), "value"))
    unit = axis.y_label
    if name == "loss":
        unit = LOSS_UNITS.get(runs[0].recipe.get("objective", {}).get("kind", ""), unit)
    lines = []
    for number, run in enumerate(runs):
        for member in members:
            if member not in run.points:
                continue
            is_training = member == "loss"
            # A single run has a colour for each line, several have one for each run.
            colour = number if len(runs) > 1 else int(len(members) > 1 and not is_training)
            label = ("training" if is_training else "validation") if len(members) > 1 and number == 0 else ""
            lines.append(
                Line(
                    name=label,
                    points=run.points[member],
                    colour=colour,
                    dashed=is_training,
                    highlight=run.highlight(member),
                )
            )
    positive = all(value > 0 for line in lines for _, value in line.points)
    return Panel(
        title=axis.title,
        x_label="optimizer steps",
        y_label=unit,
        y_scale=axis.scale if positive else Scale.LINEAR,
        x_range=(0.0, max(step for run in runs for points in run.points.values() for step, _ in points)),
        lines=lines,
    )


def _make_caption(runs: Sequence[RunCurves], metrics: Iterable[str]) -> str:
    """Explain the star, and why the training loss lies above the validation loss."""
    sentences = ["The star is the best model, which is in best/."] if any(run.best for run in runs) else []
    parts = list(dict.fromkeys(part for run in runs for part in run.regularization()))
    if {"loss", "valid_loss"} <= set(metrics):
        sentences.append("Each point of the training loss is the mean over the steps since the point before.")
        if parts:
            sentences.append(
                f"It is measured with {_join(parts)}, the validation loss without, and after these steps. So the "
                "training loss may lie above the validation loss."
            )
    return "\n".join(textwrap.wrap(" ".join(sentences), CAPTION_WIDTH))


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
