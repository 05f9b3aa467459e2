"""Splitting a text that is too long for a network into chunks of whole sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

Span = tuple[int, int]
"""Start and end of a part of a text, in characters."""

SENTENCE_END = re.compile(r"""(?<=[.!?…।؟۔])["'”’»)\]]*\s+|(?<=[。！？])["'”’»」』）]*\s*|\n+""")
"""White space after a full stop; Chinese and Japanese need none."""


def sentence_spans(text: str) -> list[Span]:
    """Return the spans of the sentences of a text, split at punctuation."""
    boundaries = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    return [_strip_span(text, start, end) for start, end in pairwise(boundaries) if text[start:end].strip()]


def _strip_span(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def split_to_fit(text: str, fits: Callable[[str], bool]) -> list[Span]:
    """Return the spans of the chunks of a text: the whole text if it fits, else as many whole sentences as fit in each.

    A single sentence that does not fit becomes a chunk of its own; the caller decides how to handle it.
    """
    if fits(text):
        return [(0, len(text))]
    chunks: list[Span] = []
    for start, end in sentence_spans(text):
        if chunks and fits(text[chunks[-1][0] : end]):
            chunks[-1] = chunks[-1][0], end
        else:
            chunks.append((start, end))
    return chunks
