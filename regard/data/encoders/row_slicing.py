"""Encoded rows taken apart and put together again, whatever special tokens a tokenizer puts between texts."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.example import Example
from regard.data.length_policy import Cut, Cuts, Long, spans
from regard.tokenization.tokenizer import Encoded


def places_of(row: Encoded, side: int) -> list[int]:
    """Where the tokens of the first text (0) or the second (1) stand in a row."""
    return [place for place, one in enumerate(row.sides) if one == side]


def windows(row: Encoded, side: int, rule: Long | None, example: Example) -> tuple[list[list[int]], Cuts]:
    """The places that each row to be made takes from this one: a window of one text, and everything around it."""
    text = places_of(row, side)
    parts, cuts = spans(rule, len(text), len(row) - len(text), example.file, example.line)
    if len(parts) == 1 and not cuts.examples:
        return [list(range(len(row)))], cuts
    return [_without(row, {*text[:begin], *text[end:]}) for begin, end in parts], cuts


def shortened(row: Encoded, rule: Long | None, example: Example) -> tuple[list[int], Cuts]:
    """The places of a row that stay when it is cut, one token at a time from the end of whichever text is longer."""
    over = len(row) - rule.length if rule is not None else 0
    if over <= 0:
        return list(range(len(row))), Cuts()
    texts = [places_of(row, 0), places_of(row, 1)]
    if not isinstance(rule, Cut) or over >= len(texts[0]) + len(texts[1]):
        spans(rule, len(texts[0]) + len(texts[1]), len(row) - len(texts[0]) - len(texts[1]), example.file, example.line)
    cut = set()
    for _ in range(over):
        cut.add(max(texts, key=len).pop())
    return _without(row, cut), Cuts(examples=1, tokens=over)


def _without(row: Encoded, cut: set[int]) -> list[int]:
    return [place for place in range(len(row)) if place not in cut]


def taken(values: Sequence[int], places: list[int]) -> list[int]:
    """The values at these places."""
    return [values[place] for place in places]
