"""Texts that are too long for a network, in pieces: whole sentences, as many as fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

SENTENCE_END = re.compile(r"""(?<=[.!?…])["'”’»)\]]*\s+|(?<=[。！？])["'”’»」』）]*\s*|\n+""")
"""White space after a full stop; Chinese and Japanese need none."""


def sentences(text: str) -> list[str]:
    """The sentences of a text, as far as punctuation tells them."""
    cuts = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    parts = (text[start:end].strip() for start, end in pairwise(cuts))
    return [part for part in parts if part]


def pieces(text: str, room: int | None, length: Callable[[Sequence[str]], list[int]]) -> list[str]:
    """The text itself if it fits, else its sentences, joined as long as they fit.

    `length` gives the number of tokens of some texts. A sentence that is too long by itself stays whole: who writes
    decides what becomes of it.
    """
    if room is None or length([text])[0] <= room:
        return [text]
    parts = sentences(text)
    taken: list[str] = []
    filled = 0
    for part, size in zip(parts, length(parts), strict=True):
        if taken and filled + size <= room:
            taken[-1] += f" {part}"
            filled += size
        else:
            taken.append(part)
            filled = size
    return taken
