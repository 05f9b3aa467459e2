"""Label names and label ids."""

from __future__ import annotations

from collections.abc import Iterable

from regard.data.example import Example, ImageText, LabeledText, TaggedSentence
from regard.data.tag_schemes import OUTSIDE
from regard.tokenization.text_files import DataError


def split_labels(labels: str | float, separator: str) -> tuple[str, ...]:
    """Split the labels of a text: `"a, b"` has two, the empty string none."""
    parts = [part.strip() for part in str(labels).split(separator)]
    return tuple(part for part in parts if part)


def collect_labels(examples: Iterable[Example], separator: str | None = None) -> tuple[str, ...]:
    """Return all labels or tags of the examples, sorted, with `O` first. The order of the examples does not matter.

    With a separator, a text has several labels.
    """
    labels: set[str] = set()
    for example in examples:
        match example:
            case LabeledText(label=str(label)):
                labels.update([label] if separator is None else split_labels(label, separator))
            case ImageText(text=label):
                labels.add(label)
            case TaggedSentence(tags=tags):
                labels.update(tags)
            case _:
                raise DataError(example.file, example.line, f"{type(example).__name__} examples have no class label")
    return tuple(sorted(labels, key=lambda name: (name != OUTSIDE, name)))


def label_id(name: str, label_to_id: dict[str, int], example: Example) -> int:
    """Return the id of a label. An unknown label raises a `DataError`."""
    class_id = label_to_id.get(name)
    if class_id is None:
        labels = ", ".join(list(label_to_id)[:12]) + (", …" if len(label_to_id) > 12 else "")
        message = f"unknown label {name!r}; known labels: {labels}"
        raise DataError(example.file, example.line, f"{message}. Check the spelling, or add it to the training data")
    return class_id
