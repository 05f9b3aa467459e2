"""What the tokens of a vocabulary were merged from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(model: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The two tokens that each token was merged from; none where a vocabulary was not made by merging.

    `model` is what stands under that name in a `tokenizer.json`. Where several merges make the same token the first
    counts, as it does when a text is cut.
    """
    inside = model.get("continuing_subword_prefix") or ""  # it marks a piece that begins no word, and goes with merging
    found: dict[str, tuple[str, str]] = {}
    for merge in model.get("merges", ()):
        left, right = merge.split(" ") if isinstance(merge, str) else merge  # older files write pairs as one text
        found.setdefault(left + right.removeprefix(inside), (left, right))
    return found
