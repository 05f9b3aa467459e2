"""A picture of word vectors: the two directions of largest variance (PCA), as SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.figure import drawing
from regard.vectors.word_vectors import WordVectors

FONT_POINTS = 9
OFFSETS = (
    *((5.0, 0.0), (-5.0, 0.0), (0.0, 7.0), (0.0, -7.0)),
    *((5.0, 6.0), (5.0, -6.0), (-5.0, 6.0), (-5.0, -6.0)),
)
"""Places of a label relative to its point in printer's points, in order of preference."""

Box = tuple[float, float, float, float]


def principal_components(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coordinates in the two directions of largest variance, and the share of variance of each.

    The sign of a direction is chosen so that its largest coefficient is positive.
    """
    centred = matrix.astype(np.float64) - matrix.mean(axis=0, dtype=np.float64)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:2]
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    coordinates = centred @ (directions * signs[:, None]).T
    shares = values**2 / max(float((values**2).sum()), 1e-300)
    if coordinates.shape[1] < 2:
        coordinates = np.pad(coordinates, ((0, 0), (0, 2 - coordinates.shape[1])))
    return coordinates, np.pad(shares, (0, 2))[:2]


def plot_words(vectors: WordVectors, words: Sequence[str], target: Path) -> None:
    """Draw words as points with labels."""
    if len(words) < 2:
        raise ValueError(f"{len(words)} words: at least 2 are needed for a picture")
    matrix = np.stack([vectors.unit_vector(word) for word in words]).astype(np.float32)
    draw_space(words, *principal_components(matrix), target)


def draw_space(
    words: Sequence[str], coordinates: NDArray[np.float64], shares: NDArray[np.float64], target: Path
) -> None:
    """Draw points with labels. Both axes have the same scale, so distances can be compared."""
    with drawing(target, width=7.6, height=5.6) as canvas:
        axes = canvas.add_subplot(aspect="equal", adjustable="datalim")
        axes.scatter(coordinates[:, 0], coordinates[:, 1], s=14, zorder=3)
        canvas.subplots_adjust(left=0.1, right=0.98, bottom=0.09, top=0.98)
        axes.margins(0.12)
        axes.set_xlabel(f"principal component 1 ({shares[0]:.0%} of the variance)")
        axes.set_ylabel(f"principal component 2 ({shares[1]:.0%} of the variance)")
        canvas.draw_without_rendering()  # fixes the scale
        pixels = axes.transData.transform(coordinates) * 72 / canvas.dpi
        places = place_labels(words, [(float(x), float(y)) for x, y in pixels])
        for word, point, (x, y) in zip(words, coordinates.tolist(), places, strict=True):
            axes.annotate(
                word,
                point,
                (x, y),
                textcoords="offset points",
                ha="left" if x > 0 else "right" if x < 0 else "center",
                va="center",
                fontsize=FONT_POINTS,
            )


def place_labels(words: Sequence[str], points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Choose for each label, one after the other, the offset where it overlaps the least with points and labels."""
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    places = []
    for number, (word, (x, y)) in enumerate(zip(words, points, strict=True)):
        others = [box for index, box in enumerate(taken) if index != number]
        offset = min(OFFSETS, key=lambda place: overlap(label_box(word, x, y, place), others))
        taken.append(label_box(word, x, y, offset))
        places.append(offset)
    return places


def label_box(word: str, x: float, y: float, offset: tuple[float, float]) -> Box:
    """Return the rectangle that a label takes, in printer's points."""
    width = 0.62 * FONT_POINTS * len(word)
    x, y = x + offset[0], y + offset[1]
    left = x if offset[0] > 0 else x - width if offset[0] < 0 else x - width / 2
    return left, y - 0.6 * FONT_POINTS, left + width, y + 0.6 * FONT_POINTS


def overlap(box: Box, others: Sequence[Box]) -> float:
    """Return the area that a rectangle shares with others."""
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in others
    )
