"""A fair sample of lines that never holds more than a given number of bytes, whatever the size of the files."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

OVERHEAD = 100
"""What a line costs in memory beside its characters."""


@dataclass(frozen=True)
class Sample:
    """Lines, in their order, and how many there were."""

    texts: list[str]
    kept_bytes: int
    lines: int
    bytes: int

    @property
    def whole(self) -> bool:
        """Whether nothing was left out."""
        return len(self.texts) == self.lines


def sample(texts: Iterable[str], limit: int, seed: int) -> Sample:
    """All texts if they fit into `limit` bytes of memory; otherwise as many as fit, each as likely as any other.

    Every text draws a number. When the limit is reached, the texts with the higher half of the numbers go, and only
    lower numbers are taken from there on. One pass, and the same seed gives the same sample.
    """
    draw = random.Random(seed).random
    kept: list[tuple[float, str]] = []
    ceiling, cost, lines, total = 1.0, 0, 0, 0
    for text in texts:
        number, size = draw(), len(text.encode("utf-8", "surrogatepass"))
        lines, total = lines + 1, total + size
        if number >= ceiling:
            continue
        kept.append((number, text))
        cost += size + OVERHEAD
        while cost > limit and len(kept) > 1:
            ceiling /= 2
            kept = [pair for pair in kept if pair[0] < ceiling]
            cost = sum(len(text.encode("utf-8", "surrogatepass")) + OVERHEAD for _, text in kept)
    chosen = [text for _, text in kept]
    return Sample(chosen, cost - OVERHEAD * len(chosen), lines, total)
