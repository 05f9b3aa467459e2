"""A uniform random sample of lines, limited to a number of bytes whatever the size of the files."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

LINE_OVERHEAD_BYTES = 100
"""Memory of a Python string beyond its characters."""


@dataclass(frozen=True)
class LineSample:
    """Sampled lines in their original order, with the totals of the population."""

    texts: list[str]
    sampled_bytes: int
    total_lines: int
    total_bytes: int

    @property
    def complete(self) -> bool:
        """Whether the sample contains every line."""
        return len(self.texts) == self.total_lines


def sample_lines(texts: Iterable[str], limit_bytes: int, seed: int) -> LineSample:
    """Return all texts if they fit into `limit_bytes` of memory, else a uniform random sample that fits.

    Every text draws a random key. Whenever the limit is exceeded, the threshold is halved, and only texts with a key
    below it are kept or accepted. This takes one pass, and the same seed gives the same sample.
    """
    draw = random.Random(seed).random
    sampled: list[tuple[float, str]] = []
    threshold, cost, total_lines, total_bytes = 1.0, 0, 0, 0
    for text in texts:
        key, size = draw(), len(text.encode("utf-8", "surrogatepass"))
        total_lines, total_bytes = total_lines + 1, total_bytes + size
        if key >= threshold:
            continue
        sampled.append((key, text))
        cost += size + LINE_OVERHEAD_BYTES
        while cost > limit_bytes and len(sampled) > 1:
            threshold /= 2
            sampled = [pair for pair in sampled if pair[0] < threshold]
            cost = sum(len(text.encode("utf-8", "surrogatepass")) + LINE_OVERHEAD_BYTES for _, text in sampled)
    lines = [text for _, text in sampled]
    return LineSample(lines, cost - LINE_OVERHEAD_BYTES * len(lines), total_lines, total_bytes)
