"""Build typed examples from values by field name (the cells of a table row, the keys of a JSON object)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, cast

from regard.data.example import Answer, Document, Example, LabeledText, Pair, Question, TaggedSentence
from regard.data.formats import Scheme
from regard.data.tag_schemes import detect_scheme, to_bio
from regard.tokenization.text_files import DataError

REQUIRED_FIELDS: dict[type[Example], tuple[str, ...]] = {
    Pair: ("source", "target"),
    Document: ("text",),
    LabeledText: ("text", "label"),
    TaggedSentence: ("words", "tags"),
    Question: ("question", "context"),
}
OPTIONAL_FIELDS: dict[type[Example], tuple[str, ...]] = {
    Pair: (),
    Document: (),
    LabeledText: ("pair",),
    TaggedSentence: (),
    Question: ("id", "title", "answers", "answer", "start"),
}


class LabelType(Enum):
    """Type of a label. The values are part of the cache key of a corpus, so they must not change."""

    CLASS = "name"
    """A class name."""
    SCORE = "number"
    """A number, such as the similarity of two texts."""


@dataclass(frozen=True, kw_only=True)
class ExampleBuilder:
    """Build examples of one type from values by field name. Raise a `DataError` for missing or invalid values."""

    example_type: type[Example]
    label_type: LabelType = LabelType.CLASS
    join: str | None = None
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def build(self, field_values: Mapping[str, Any], file: Path, line: int) -> Example:
        """Build an example from the values of its fields."""
        values = _FieldValues(field_values, file, line, self.join, self.class_names)
        origin: dict[str, Any] = dict(file=file, line=line)
        if self.example_type is Pair:
            return Pair(source=values.text("source"), target=values.text("target"), **origin)
        if self.example_type is Document:
            return Document(text=values.text("text"), **origin)
        if self.example_type is LabeledText:
            label = values.class_name("label") if self.label_type is LabelType.CLASS else values.number("label")
            return LabeledText(text=values.text("text"), pair=values.optional_text("pair"), label=label, **origin)
        if self.example_type is TaggedSentence:
            return self._tagged(values, origin)
        return _question(values, origin)

    def _tagged(self, values: _FieldValues, origin: dict[str, Any]) -> TaggedSentence:
        words, tags = values.words("words"), values.class_names("tags")
        if len(words) != len(tags):
            values.fail(f"{len(words)} words but {len(tags)} tags: expected one tag per word")
        scheme = detect_scheme([tags])
        if scheme in (Scheme.BIO, Scheme.IOB1):
            scheme = Scheme.LENIENT  # one sentence is not enough to tell them apart; LENIENT reads both
        return TaggedSentence(words=words, tags=to_bio(tags, scheme, values.file, [values.line] * len(tags)), **origin)


def check_fields(example_type: type[Example], names: Iterable[str], file: Path) -> None:
    """Raise a `DataError` if one of the names is not a field of this example type."""
    fields = REQUIRED_FIELDS[example_type] + OPTIONAL_FIELDS[example_type]
    for name in names:
        if name not in fields:
            type_name = example_type.__name__
            raise DataError(file, None, f"{type_name} has no field {name!r}; its fields are {', '.join(fields)}")


def missing_field_error(
    example_type: type[Example], column: str, columns: Iterable[str], file: Path, line: int, hint: str
) -> DataError:
    """Return the error for a required column or key that is missing."""
    names = ", ".join(str(name) for name in columns)[:200] or "nothing"
    return DataError(
        file, line, f"missing column or key {column!r} (required by {example_type.__name__}); found {names}. {hint}"
    )


class _FieldValues:
    """Values by field name, with one accessor for each expected type."""

    def __init__(
        self, values: Mapping[str, Any], file: Path, line: int, join: str | None, names: Mapping[str, Sequence[str]]
    ) -> None:
        self.values, self.file, self.line, self.join, self.names = values, file, line, join, names

    def fail(self, message: str) -> NoReturn:
        raise DataError(self.file, self.line, message)

    def type_error(self, name: str, expected: str) -> NoReturn:
        value = repr(self.values.get(name))
        self.fail(f"{name!r} should be {expected}, found {value if len(value) < 80 else value[:77] + '...'}")

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
            if self.join is None:
                self.type_error(name, 'a string (set join=" " to join a list of strings)')
            return self.join.join(value)
        return self.type_error(name, "a string")

    def optional_text(self, name: str) -> str | None:
        return None if self.values.get(name) is None else self.text(name)

    def class_name(self, name: str) -> str:
        return self._class_name(name, self.values.get(name))

    def number(self, name: str) -> float:
        value = self.values.get(name)
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except ValueError:
            number = math.nan
        return number if math.isfinite(number) else self.type_error(name, "a number")

    def words(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name)
        if isinstance(value, str):
            return tuple(value.split())
        if isinstance(value, Sequence) and all(isinstance(word, str) for word in value):
            return tuple(value)
        return self.type_error(name, "a list of words")

    def class_names(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name)
        if isinstance(value, str):
            return tuple(value.split())
        if isinstance(value, Sequence):
            return tuple(self._class_name(name, tag) for tag in value)
        return self.type_error(name, "a list of tags")

    def _class_name(self, name: str, value: object) -> str:
        names = self.names.get(name)
        class_id = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else None
        if names is not None and class_id is not None and not isinstance(value, bool):
            if class_id >= len(names) or class_id < 0:
                self.fail(f"{name!r} is {class_id}, but class names are given only for 0 to {len(names) - 1}")
            return names[class_id]
        if isinstance(value, str | int):
            return str(value)
        return self.type_error(name, "a class name (a string or an integer)")


def _question(values: _FieldValues, origin: dict[str, Any]) -> Question:
    return Question(
        id=values.optional_text("id") or str(values.line),
        question=values.text("question"),
        context=values.text("context"),
        title=values.optional_text("title") or "",
        answers=tuple(_answers(values)),
        **origin,
    )


def _answers(values: _FieldValues) -> Iterable[Answer]:
    """Yield answers given as SQuAD's nested list, as Hugging Face's two lists, or as one text and its start."""
    answers = values.values.get("answers")
    if answers is None and values.values.get("answer"):
        answers = [{"text": values.text("answer"), "answer_start": values.values.get("start")}]
    if isinstance(answers, Mapping):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, Sequence) or not isinstance(starts, Sequence) or len(texts) != len(starts):
            values.type_error("answers", "lists `text` and `answer_start` of equal length")
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    for answer in cast(Sequence[Any], answers or ()):
        text = answer.get("text") if isinstance(answer, Mapping) else None
        start = answer.get("answer_start") if isinstance(answer, Mapping) else None
        if isinstance(start, str) and start.isdecimal():
            start = int(start)
        if not isinstance(text, str) or not isinstance(start, int):
            values.type_error("answers", "answers with a `text` and an `answer_start`")
        yield Answer(text=text, start=start)
