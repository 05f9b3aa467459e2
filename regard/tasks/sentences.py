"""Texts that are too long for a network, in pieces: whole sentences, as many as fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

Span = tuple[int, int]
"""First character and end."""

SENTENCE_END = re.compile(r"""(?<=[.!?…।؟۔])["'”’»)\]]*\s+|(?<=[。！？])["'”’»」』）]*\s*|\n+""")
"""White space after a full stop; Chinese and Japanese need none."""


def sentences(text: str) -> list[Span]:
    """Where the sentences of a text stand, as far as punctuation tells them."""
    cuts = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    return [_without_spaces(text, start, end) for start, end in pairwise(cuts) if text[start:end].strip()]


def _without_spaces(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def pieces(text: str, fits: Callable[[str], bool]) -> list[Span]:
    """Where the pieces of a text stand: all of it if it fits, else its sentences, together as long as they fit.

    A sentence that is too long by itself stays whole: who writes decides what becomes of it.
    """
    if fits(text):
        return [(0, len(text))]
    taken: list[Span] = []
    for start, end in sentences(text):
        if taken and fits(text[taken[-1][0] : end]):
            taken[-1] = taken[-1][0], end
        else:
            taken.append((start, end))
    return taken
