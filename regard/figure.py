"""Figures: SVG and PNG from one description, drawn by matplotlib. It is imported only when something is drawn."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.files import atomic_write

COLOURS = ("#1f6fb2", "#c8553d", "#3a8f5c", "#8a5fb0", "#b8860b", "#4f9da6", "#7a4b2a", "#d1609c")
"""Colours of lines, in this order; they differ in brightness too."""
FORMATS = (".svg", ".png")
MAX_MARKED_POINTS = 40
"""A line with at most this many points has a marker at each, so that a single point is seen too."""
STYLE: Any = {
    "text.parse_math": False,  # a $ in the name of a run is a $
    "svg.fonttype": "none",  # text stays text: it can be searched, and the file is small
    "svg.hashsalt": "regard",  # equal figures are equal files
    "font.family": "DejaVu Sans",  # a wide font that matplotlib has itself: others take less room
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.framealpha": 0.85,
}


class Scale(enum.StrEnum):
    """Scale of an axis."""

    LINEAR = "linear"
    LOG = "log"
    LOG2 = "log2"
    """Logarithmic, with a tick at each value that occurs: for sizes that are doubled."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve."""

    name: str
    """Its name in the legend of the panel; empty for none."""
    points: Sequence[tuple[float, float]]
    colour: int = 0
    """Index in `COLOURS`."""
    dashed: bool = False
    highlight: tuple[float, float] | None = None
    """A point that is marked by a star."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes with its curves."""

    title: str
    x_label: str
    """What the x-axis shows, with its unit."""
    y_label: str
    lines: Sequence[Line]
    x_scale: Scale = Scale.LINEAR
    y_scale: Scale = Scale.LINEAR
    x_range: tuple[float, float] | None = None
    """Ends of the x-axis, to compare panels. Default: those of the lines."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels in a grid, each with its own axes."""

    title: str
    panels: Sequence[Panel]
    caption: str = ""
    """Sentences below the panels."""
    key: Sequence[str] = ()
    """Names of the colours, if they mean the same in all panels."""
    columns: int = 2


def write_figure(figure: Figure, path: Path) -> None:
    """Draw a figure and write it as SVG or PNG, by the ending of the file's name."""
    columns = min(figure.columns, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    with drawing(
        path, width=5.0 * columns, height=2.7 * rows + 0.6 + 0.18 * (figure.caption.count("\n") + len(figure.key))
    ) as canvas:
        canvas.set_layout_engine("constrained", h_pad=0.12, w_pad=0.12)
        if figure.key:
            _draw_key(canvas, figure)
        else:
            canvas.suptitle(figure.title, fontsize=12)
        for number, panel in enumerate(figure.panels, 1):
            _draw_panel(canvas.add_subplot(rows, columns, number), panel)
        if figure.caption:
            canvas.supxlabel(figure.caption, fontsize=8, color="#444444", x=0.01, ha="left")


@contextmanager
def drawing(path: Path, *, width: float, height: float) -> Iterator[Any]:
    """Yield an empty matplotlib figure of this size in inches to draw on, and write it to a file afterwards.

    The same drawing gives the same bytes: the file has no date.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: the file name must end in {' or '.join(FORMATS)}")
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(width, height), dpi=120)
        yield canvas
        with atomic_write(path) as temporary:
            metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            canvas.savefig(temporary, format=path.suffix[1:], metadata=metadata)


def _draw_panel(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    for line in panel.lines:
        x, y = zip(*line.points, strict=True)
        axes.plot(
            x,
            y,
            color=COLOURS[line.colour % len(COLOURS)],
            linestyle="--" if line.dashed else "-",
            linewidth=1.1 if line.dashed else 1.5,
            marker="o" if len(x) <= MAX_MARKED_POINTS else "",
            markersize=3,
            label=line.name or "_",
        )
        if line.highlight is not None:
            axes.plot(*line.highlight, "*", color=COLOURS[line.colour % len(COLOURS)], markersize=11, label="_")
    _set_scale(axes, panel)
    if any(line.name for line in panel.lines):
        axes.legend(loc="best")


def _set_scale(axes: Any, panel: Panel) -> None:
    """Set the scales, and ticks that are written out: 1,000 and 0.5, not powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    formatter = FuncFormatter(lambda value, _: f"{value:,.6g}")
    if panel.x_scale is Scale.LOG2:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({x for line in panel.lines for x, _ in line.points}))
        axes.xaxis.set_minor_locator(NullLocator())
    elif panel.x_scale is Scale.LOG:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(formatter)
    if panel.x_range is not None:
        low, high = panel.x_range
        axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
    if panel.y_scale is not Scale.LINEAR:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        wide = high > 5 * low
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9) if wide else MaxNLocator(5))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(formatter)


def _draw_key(canvas: Any, figure: Figure) -> None:
    """Draw the title of the figure, and below it the names of the colours."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[number % len(COLOURS)], linewidth=2, label=name)
        for number, name in enumerate(figure.key)
    ]
    canvas.legend(
        handles=handles,
        loc="outside upper center",
        ncols=1 if max(map(len, figure.key)) > 30 else 4,
        frameon=False,
        fontsize=9,
        title=figure.title,
        title_fontsize=12,
    )
