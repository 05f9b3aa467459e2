"""Lengths of real sentences, for benchmarks that need only the lengths."""

import os
import random
from pathlib import Path


def sentence_lengths(side, count):
    """Lengths in tokens: the words of Multi30k captions plus a quarter for subwords, or a similar distribution."""
    rng = random.Random(0)
    data = os.environ.get("REGARD_DATA")
    path = Path(data) / "multi30k" / f"val.{side}" if data else None
    if path is not None and path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        words = [len(line.split()) for line in rng.sample(lines, count)]
    else:
        words = [max(4, round(rng.lognormvariate(2.45, 0.33))) for _ in range(count)]
    return [round(1.25 * n) + 2 for n in words]
