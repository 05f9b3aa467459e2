"""Splitting a text into words, each with its place in the text."""

from __future__ import annotations

import re

from regard.tasks.sentences import Span

CJK = "぀-ヿ㐀-䶿一-鿿豈-﫿"
WORD = re.compile(
    rf"[{CJK}]"  # a Chinese or Japanese character
    r"|['’][sS](?!\w)"  # the ending of a genitive, which is not part of a name
    # a word, with the apostrophes, hyphens and dots inside it
    rf"|[^\W_{CJK}](?:(?:(?!['’][sS](?!\w))(?:[^\W{CJK}]|['’.\-]))*[^\W_{CJK}])?"
    r"|[^\w\s]|_"  # a punctuation mark
)
NOT_SPACE = re.compile(r"\S+")


def split_words(text: str) -> list[Span]:
    """Return the spans of words and punctuation marks: `Anna's cat weighs 3.14 kg.` has seven."""
    return [match.span() for match in WORD.finditer(text)]


def split_at_spaces(text: str) -> list[Span]:
    """Return the spans of the parts of a text between white space."""
    return [match.span() for match in NOT_SPACE.finditer(text)]
