"""Plot the metrics of a run: SVG without dependencies, PNG with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from regard.files import atomic_write
from regard.training.run.run_dir import read_metrics

COLUMNS, WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 2, 400, 170, 56, 24, 50, 46
COLOURS = ("#1f6fb2", "#c8553d", "#3a8f5c", "#8a5fb0")
SHARED_PANELS = {"valid_loss": "loss"}
"""Metrics that are drawn in the panel of another."""
LAST_PANELS = ("lr", "grad_norm")
"""Metrics whose panels come last."""


@dataclass(frozen=True)
class Curve:
    """One metric over the steps."""

    name: str
    points: list[tuple[float, float]]


def plot_curves(run: Path, target: Path) -> None:
    """Plot all metrics of a run: loss and validation loss in one panel, every other metric in its own."""
    panels = group_panels(read_metrics(run / "metrics.jsonl"))
    if not panels:
        raise ValueError(f"{run / 'metrics.jsonl'} is empty: nothing has been logged yet")
    if target.suffix == ".png":
        _render_png(panels, target)
        return
    with atomic_write(target) as temporary:
        temporary.write_text(render_svg(panels, run.name), encoding="utf-8")


def group_panels(lines: Iterable[dict[str, Any]]) -> list[list[Curve]]:
    """Group the curves by panel. Averaged checkpoints are not points of a curve."""
    points: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        for name, value in line.items():
            if (
                name not in ("step", "epoch", "averaged_steps")
                and "averaged_steps" not in line
                and math.isfinite(value)
            ):
                points.setdefault(name, []).append((float(line["step"]), float(value)))
    panels: dict[str, list[Curve]] = {}
    for name, curve_points in sorted(points.items(), key=lambda item: item[0] in LAST_PANELS):
        panels.setdefault(SHARED_PANELS.get(name, name), []).append(Curve(name, curve_points))
    return list(panels.values())


def render_svg(panels: Sequence[Sequence[Curve]], title: str) -> str:
    """Draw all panels in a grid, over the same range of steps."""
    width, height = COLUMNS * (LEFT + WIDTH + RIGHT), TOP - (-len(panels) // COLUMNS) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    x_ticks = ticks(0.0, max(x for curves in panels for curve in curves for x, _ in curve.points))
    for number, curves in enumerate(panels):
        row, column = divmod(number, COLUMNS)
        parts += _render_panel(curves, x_ticks, LEFT + column * (LEFT + WIDTH + RIGHT), TOP + row * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _render_panel(curves: Sequence[Curve], x_ticks: Sequence[float], left: int, top: int) -> list[str]:
    ys = [y for curve in curves for _, y in curve.points]
    y_ticks = ticks(min(ys), max(ys))

    def to_pixels(x: float, y: float) -> tuple[float, float]:
        pixel_x = left + WIDTH * (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        return pixel_x, top + HEIGHT * (1 - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]))

    parts = []
    for y in y_ticks:
        _, pixel_y = to_pixels(0.0, y)
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{pixel_y:.1f}" y2="{pixel_y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{pixel_y + 4:.1f}" text-anchor="end" fill="#555">{y:g}</text>')
    for x in x_ticks:
        pixel_x, _ = to_pixels(x, y_ticks[0])
        parts.append(f'<text x="{pixel_x:.1f}" y="{top + HEIGHT + 16}" text-anchor="middle" fill="#555">{x:g}</text>')
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        pixels = [to_pixels(x, y) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if len(pixels) <= 40:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in pixels]
        name = escape(curve.name.replace("_", " "))
        parts.append(f'<text x="{left + 110 * number}" y="{top - 8}" fill="{colour}">{name}</text>')
    return parts


def ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers that enclose the range, in steps of 1, 2 or 5 times a power of ten."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a single value, at the resolution of the plot
        low, high = low - 0.5 * (abs(low) or 1), low + 0.5 * (abs(low) or 1)
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _render_png(panels: Sequence[Sequence[Curve]], target: Path) -> None:
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ValueError(f"{target}: PNG needs matplotlib (pip install 'regard[png]'); SVG does not") from None
    figure = Figure(figsize=(7, 2.6 * len(panels)), layout="constrained")
    for number, curves in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, number + 1)
        for curve in curves:
            axes.plot(*zip(*curve.points, strict=True), label=curve.name.replace("_", " "))
        axes.legend()
    figure.savefig(target)
