"""The merges of a BPE vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def read_merge_table(model: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the two tokens that each token was merged from; empty for a vocabulary without merges.

    `model` is the entry of that name in a `tokenizer.json`. If several merges produce the same token, the first one
    counts, because it has the highest priority when a text is tokenized.
    """
    prefix = model.get("continuing_subword_prefix") or ""  # marks a token inside a word; merging removes it
    table: dict[str, tuple[str, str]] = {}
    for merge in model.get("merges", ()):
        left, right = merge.split(" ") if isinstance(merge, str) else merge  # older files store a pair as one string
        table.setdefault(left + right.removeprefix(prefix), (left, right))
    return table
