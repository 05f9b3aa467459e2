"""The curves of a run as a picture: SVG written here, PNG by matplotlib where it is installed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from regard.checkpoint.files import replacing
from regard.training.run.run_dir import read_metrics

COLUMNS, WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 2, 400, 170, 56, 24, 50, 46
COLOURS = ("#1f6fb2", "#c8553d", "#3a8f5c", "#8a5fb0")
TOGETHER = {"valid_loss": "loss"}
"""Curves that share a panel with another."""
LAST = ("rate", "gradient")
"""What is of less interest."""


@dataclass(frozen=True)
class Curve:
    """One value, step by step."""

    name: str
    points: list[tuple[float, float]]


def plot(run: Path, target: Path) -> None:
    """Draw all curves of a run's metrics.jsonl, loss and validation loss together, each other one apart."""
    panels = panels_of(read_metrics(run / "metrics.jsonl"))
    if not panels:
        raise ValueError(f"{run / 'metrics.jsonl'} holds no numbers yet: the run has only begun")
    if target.suffix == ".png":
        _png(panels, target)
        return
    with replacing(target) as temporary:
        temporary.write_text(svg(panels, run.name), encoding="utf-8")


def panels_of(lines: Iterable[dict[str, Any]]) -> list[list[Curve]]:
    """The curves, grouped by the panel that they share. Means of states are no points of a curve."""
    points: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        for name, value in line.items():
            if name not in ("step", "epoch", "mean_of") and "mean_of" not in line and math.isfinite(value):
                points.setdefault(name, []).append((float(line["step"]), float(value)))
    panels: dict[str, list[Curve]] = {}
    for name, found in sorted(points.items(), key=lambda item: item[0] in LAST):
        panels.setdefault(TOGETHER.get(name, name), []).append(Curve(name, found))
    return list(panels.values())


def svg(panels: Sequence[Sequence[Curve]], title: str) -> str:
    """All panels, side by side and below each other, over the same steps."""
    width, height = COLUMNS * (LEFT + WIDTH + RIGHT), TOP - (-len(panels) // COLUMNS) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    across = ticks(0.0, max(x for curves in panels for curve in curves for x, _ in curve.points))
    for number, curves in enumerate(panels):
        row, column = divmod(number, COLUMNS)
        parts += _panel(curves, across, LEFT + column * (LEFT + WIDTH + RIGHT), TOP + row * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _panel(curves: Sequence[Curve], across: Sequence[float], left: int, top: int) -> list[str]:
    ys = [y for curve in curves for _, y in curve.points]
    up = ticks(min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        right = left + WIDTH * (x - across[0]) / (across[-1] - across[0])
        return right, top + HEIGHT * (1 - (y - up[0]) / (up[-1] - up[0]))

    parts = []
    for y in up:
        _, line = place(0.0, y)
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{line:.1f}" y2="{line:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{line + 4:.1f}" text-anchor="end" fill="#555">{y:g}</text>')
    for x in across:
        column, _ = place(x, up[0])
        parts.append(f'<text x="{column:.1f}" y="{top + HEIGHT + 16}" text-anchor="middle" fill="#555">{x:g}</text>')
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(x, y) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if len(places) <= 40:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in places]
        name = escape(curve.name.replace("_", " "))
        parts.append(f'<text x="{left + 110 * number}" y="{top - 8}" fill="{colour}">{name}</text>')
    return parts


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers around all values: steps of 1, 2 or 5 times a power of ten."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # one value, as far as a picture and its numbers can tell
        low, high = low - 0.5 * (abs(low) or 1), low + 0.5 * (abs(low) or 1)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _png(panels: Sequence[Sequence[Curve]], target: Path) -> None:
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ValueError(f"{target}: PNG needs matplotlib (pip install 'regard[png]'); .svg needs nothing") from None
    figure = Figure(figsize=(7, 2.6 * len(panels)), layout="constrained")
    for number, curves in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, number + 1)
        for curve in curves:
            axes.plot(*zip(*curve.points, strict=True), label=curve.name.replace("_", " "))
        axes.legend()
    figure.savefig(target)
