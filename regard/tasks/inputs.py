"""The kinds of inputs of tasks."""

from __future__ import annotations

from pathlib import Path

from regard.training.task import InputKind

TextPair = tuple[str, str]
"""Two texts that are read together."""


def check_iterable(inputs: object) -> None:
    """Raise a ValueError for a single string, which is an iterable of characters too."""
    if isinstance(inputs, str):
        raise ValueError("expected a list or an iterator of inputs, found a single string: pass [text]")


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(text, str) for text in value)


def _parse_text_or_pair(line: str) -> str | TextPair:
    text, tab, pair = line.partition("\t")
    return (text, pair) if tab else text


def _parse_pair(line: str) -> TextPair:
    first, tab, second = line.partition("\t")
    if not tab:
        raise ValueError(f"expected two texts, separated by a tab; found {line[:80]!r}")
    return first, second


TEXT = InputKind[str](
    name="text",
    help="A text, a file with one text per line, or - for standard input (the default).",
    is_single=lambda value: isinstance(value, str),
    parse=str,
)
PROMPT = InputKind[str](
    name="prompt",
    help="A prompt, a file with one prompt per line, or - for standard input (the default).",
    is_single=lambda value: isinstance(value, str),
    parse=str,
)
TEXT_OR_PAIR = InputKind[str | TextPair](
    name="text",
    help="A text, a file with one text per line, or - for standard input (the default). A tab separates the two texts "
    "of a pair.",
    is_single=lambda value: isinstance(value, str) or _is_pair(value),
    parse=_parse_text_or_pair,
)
QUESTION_AND_CONTEXT = InputKind[TextPair](
    name="question",
    help="A question, a tab and a context; a file with one such pair per line, or - for standard input (the default).",
    is_single=_is_pair,
    parse=_parse_pair,
)
IMAGE = InputKind[Path](
    name="image",
    help="An image file, a file with one name of an image per line, or - for standard input (the default).",
    is_single=lambda value: isinstance(value, str | Path),
    parse=Path,
)
