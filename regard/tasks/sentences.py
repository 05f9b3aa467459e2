"""Splitting a text that is too long for a network into chunks of whole sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

Span = tuple[int, int]
"""Start and end of a part of a text, in characters."""
Splitter = Callable[[str, int, int], Sequence[Span]]
"""Splits a part of a text, given its start and end."""

SENTENCE_END = re.compile(r"""(?<=[.!?…।؟۔])["'”’»)\]]*\s+|(?<=[。！？])["'”’»」』）]*\s*|\n+""")
"""White space after a full stop; Chinese and Japanese need none."""
CHARACTERS_PER_TOKEN = 64
"""A text with more characters than this for each token that fits is too long; it is not encoded to find that out."""
WORD = re.compile(r"\S+")


def sentence_spans(text: str) -> list[Span]:
    """Return the spans of the sentences of a text, split at punctuation."""
    boundaries = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    return [_strip_span(text, start, end) for start, end in pairwise(boundaries) if text[start:end].strip()]


def _strip_span(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def split_to_fit(text: str, fits: Callable[[str], bool]) -> Iterator[Span]:
    """Yield the spans of the chunks of a text: the whole text if it fits, else as many whole sentences as fit in each.

    A sentence that does not fit alone is split between words, and a word that does not fit alone between characters.
    `fits` is called with at most about three times as much text as fits.
    """
    if fits(text):
        yield 0, len(text)
    else:
        yield from _fill_chunks(text, sentence_spans(text), fits, (_word_spans, _character_spans))


def _fill_chunks(
    text: str, spans: Sequence[Span], fits: Callable[[str], bool], finer: Sequence[Splitter]
) -> Iterator[Span]:
    """Yield chunks of as many spans as fit. A span that does not fit alone is split by the next finer splitter."""
    first = 0
    while first < len(spans):
        start = spans[first][0]
        count = _largest(len(spans) - first, partial(_joined_fits, text, spans, first, fits))
        if not count and not finer:  # not even one character fits: the caller truncates the rest
            yield start, spans[-1][1]
            return
        if not count:
            yield from _fill_chunks(text, finer[0](text, *spans[first]), fits, finer[1:])
            first += 1
        else:
            yield start, spans[first + count - 1][1]
            first += count


def _joined_fits(text: str, spans: Sequence[Span], first: int, fits: Callable[[str], bool], count: int) -> bool:
    return fits(text[spans[first][0] : spans[first + count - 1][1]])


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` that fits, 0 if none does: by doubling, then by bisection."""
    low, step = 0, 1
    while low < limit:
        high = min(low + step, limit)
        if not fits(high):
            break
        low, step = high, 2 * step
    else:
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _word_spans(text: str, start: int, end: int) -> list[Span]:
    return [match.span() for match in WORD.finditer(text, start, end)]


class _CharacterSpans(Sequence[Span]):
    """The spans of single characters, which take no memory."""

    def __init__(self, start: int, end: int) -> None:
        self.range = range(start, end)

    def __len__(self) -> int:
        return len(self.range)

    def __getitem__(self, index: Any) -> Any:
        return self.range[index], self.range[index] + 1


def _character_spans(text: str, start: int, end: int) -> Sequence[Span]:
    del text
    return _CharacterSpans(start, end)
