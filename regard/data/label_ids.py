"""The names of labels and tags, and the numbers that stand for them."""

from __future__ import annotations

from collections.abc import Iterable

from regard.data.example import Example, Labelled, Tagged
from regard.data.tag_schemes import OUTSIDE
from regard.tokenization.text_files import DataError


def labels_of(examples: Iterable[Example]) -> tuple[str, ...]:
    """All labels or tags of these examples, sorted, so that they do not depend on the order; `O` comes first."""
    found: set[str] = set()
    for example in examples:
        match example:
            case Labelled(label=str(label)):
                found.add(label)
            case Tagged(tags=tags):
                found.update(tags)
            case _:
                raise DataError(example.file, example.line, f"{type(example).__name__} has no label by name")
    return tuple(sorted(found, key=lambda name: (name != OUTSIDE, name)))


def number_of(name: str, numbers: dict[str, int], example: Example) -> int:
    """The number of a label; one that is not known is an error."""
    number = numbers.get(name)
    if number is None:
        known = ", ".join(list(numbers)[:12])
        said = f"label {name!r} is not known; known are {known}{', …' if len(numbers) > 12 else ''}"
        raise DataError(example.file, example.line, f"{said}. Is it misspelt, or missing in the training data?")
    return number
