"""The kinds of inputs of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.training.task import InputKind

TextPair = tuple[str, str]
"""Two texts that are read together."""


@runtime_checkable
class PillowImage(Protocol):
    """An image of Pillow."""

    def getbands(self) -> tuple[str, ...]:
        """Return the names of its channels."""


@runtime_checkable
class PixelArray(Protocol):
    """An array of numpy: height × width × channels, with values from 0 to 255."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


Image = Path | PillowImage | PixelArray
"""An image, or the name of its file (which may be a string too)."""


def check_iterable(inputs: object) -> None:
    """Raise a ValueError for a single string, which is an iterable of characters too."""
    if isinstance(inputs, str):
        raise ValueError("expected a list or an iterator of inputs, found a single string: pass [text]")


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(text, str) for text in value)


def _is_image(value: object) -> bool:
    return isinstance(value, Path | PillowImage | PixelArray)


def _is_words(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(word, str) for word in value)


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
TEXT_PAIR_OR_IMAGE = InputKind[str | TextPair | Image](
    name="text",
    help="A text, a file with one text per line, or - for standard input (the default). A tab separates the two texts "
    "of a pair. For models that read images: an image, a folder of images, or a file with one name per line.",
    is_single=lambda value: isinstance(value, str) or _is_pair(value) or _is_image(value),
    parse=_parse_text_or_pair,
)
TEXT_OR_IMAGE = InputKind[str | Image](
    name="text",
    help="A text, a file with one text per line, or - for standard input (the default). With --images: an image, a "
    "folder of images, or a file with one name per line.",
    is_single=lambda value: isinstance(value, str) or _is_image(value),
    parse=str,
)
TEXT_OR_WORDS = InputKind[str | tuple[str, ...]](
    name="text",
    help="A text, a file with one text per line, or - for standard input (the default).",
    is_single=lambda value: isinstance(value, str) or _is_words(value),
    parse=str,
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
