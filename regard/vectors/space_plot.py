"""A picture of word vectors: the two directions of largest variance (PCA), as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.files import atomic_write
from regard.vectors.word_vectors import WordVectors

WIDTH, HEIGHT, MARGIN, FONT = 760, 560, 40, 13
CHARACTER_WIDTH = 0.58 * FONT
COLOUR = "#1f6fb2"
OFFSETS = (
    *((6.0, 4.0), (-6.0, 4.0), (0.0, -8.0), (0.0, 18.0)),
    *((6.0, -8.0), (6.0, 16.0), (-6.0, -8.0), (-6.0, 16.0)),
)
"""Places of a label relative to its point, in order of preference."""


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
    coordinates, shares = principal_components(matrix)
    with atomic_write(target) as temporary:
        temporary.write_text(render_space(words, coordinates, shares), encoding="utf-8")


def render_space(words: Sequence[str], coordinates: NDArray[np.float64], shares: NDArray[np.float64]) -> str:
    """Return the picture as SVG. Both axes have the same scale, so distances can be compared."""
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    span = np.maximum(high - low, 1e-9)
    scale = min((WIDTH - 2 * MARGIN - 80) / span[0], (HEIGHT - 2 * MARGIN - 20) / span[1])
    middle = (low + high) / 2
    points = [
        (WIDTH / 2 + (x - middle[0]) * scale, HEIGHT / 2 - 10 - (y - middle[1]) * scale)
        for x, y in coordinates.tolist()
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="{FONT}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOUR}"/>' for x, y in points),
        *_labels(words, points),
        f'<text x="{MARGIN}" y="{HEIGHT - 14}" fill="#555" font-size="12">principal components 1 (horizontal, '
        f"{shares[0]:.0%} of the variance) and 2 (vertical, {shares[1]:.0%})</text>",
    ]
    return "\n".join([*parts, "</svg>", ""])


def _labels(words: Sequence[str], points: Sequence[tuple[float, float]]) -> list[str]:
    """Place each label where it overlaps the least with points and other labels."""
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    parts = []
    for number, (word, (x, y)) in enumerate(zip(words, points, strict=True)):
        others = [box for index, box in enumerate(taken) if index != number]
        boxes = [(_box(word, x + dx, y + dy, dx), dx, dy) for dx, dy in OFFSETS]
        box, dx, dy = min(boxes, key=lambda choice: _overlap(choice[0], others))
        taken.append(box)
        anchor = "start" if dx > 0 else "end" if dx < 0 else "middle"
        parts.append(f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}">{escape(word)}</text>')
    return parts


def _box(word: str, x: float, y: float, dx: float) -> tuple[float, float, float, float]:
    width = CHARACTER_WIDTH * len(word)
    left = x if dx > 0 else x - width if dx < 0 else x - width / 2
    return left, y - FONT * 0.8, left + width, y + FONT * 0.25


def _overlap(box: tuple[float, float, float, float], others: Sequence[tuple[float, float, float, float]]) -> float:
    outside = max(0.0, -box[0]) + max(0.0, box[2] - WIDTH) + max(0.0, -box[1]) + max(0.0, box[3] - HEIGHT)
    return 100 * outside + sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in others
    )
