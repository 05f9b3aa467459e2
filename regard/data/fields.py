"""The fields of each type of example, and the conversion of values (cells of a table, JSON values) to their types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, cast

from regard.data.example import FREE_ANSWER, Document, Example, LabeledText, Pair, Question, TaggedSentence
from regard.data.problem import DataProblem, ProblemKind
from regard.data.record_batch import RecordBatch, make_batch

REQUIRED_FIELDS: dict[type[Example], tuple[str, ...]] = {
    Pair: ("source", "target"),
    Document: ("text",),
    LabeledText: ("text", "label"),
    TaggedSentence: ("words", "tags"),
    Question: ("question", "context"),
}
OPTIONAL_FIELDS: dict[type[Example], tuple[str, ...]] = {
    Pair: ("references",),
    Document: (),
    LabeledText: ("pair",),
    TaggedSentence: (),
    Question: ("id", "title", "answers", "answer", "start"),
}


class LabelType(Enum):
    """Type of a label. The values are part of the cache key of a corpus, so they must not change."""

    CLASS = "name"
    """A class name."""
    CLASSES = "names"
    """Several class names in one text, or none."""
    SCORE = "number"
    """A number, such as the similarity of two texts."""


@dataclass(frozen=True, kw_only=True)
class FieldConverter:
    """Converts values by field name to the types of the fields of an example."""

    example_type: type[Example]
    label_type: LabelType = LabelType.CLASS
    join: str | None = None
    """Separator that joins a list of strings to one text."""
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Class names by label id, for each field."""

    def convert_columns(
        self, file: Path, lines: Sequence[int], columns: Mapping[str, Sequence[str]], problems: list[DataProblem]
    ) -> RecordBatch:
        """Convert columns of strings. Most of them need no conversion, which is checked a column at a time."""
        if self._is_converted(columns):
            return make_batch(file, lines, columns, problems)
        names = list(columns)
        rows = [dict(zip(names, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        return self.convert_rows(file, lines, rows, problems)

    def _is_converted(self, columns: Mapping[str, Sequence[str]]) -> bool:
        if self.example_type in (Pair, Document):
            return "references" not in columns
        is_class = self.example_type is LabeledText and self.label_type is LabelType.CLASS
        return is_class and not self.class_names and all(map(str.strip, columns["label"]))

    def convert_rows(
        self, file: Path, lines: Sequence[int], rows: Sequence[Mapping[str, Any]], problems: list[DataProblem]
    ) -> RecordBatch:
        """Convert rows to columns. Values that are missing or have the wrong type become problems."""
        converted: list[Mapping[str, Any]] = []
        converted_lines: list[int] = []
        for line, row in zip(lines, rows, strict=True):
            try:
                converted.append(self._convert(_FieldValues(row, file, line, self.join, self.class_names)))
                converted_lines.append(line)
            except DataProblem as problem:
                problems.append(problem)
        problems.sort(key=lambda problem: problem.line or 0)
        names = converted[0] if converted else {}
        if self.example_type is LabeledText and not any(row["pair"] is not None for row in converted):
            names = {name: None for name in names if name != "pair"}
        return make_batch(file, converted_lines, {name: [row[name] for row in converted] for name in names}, problems)

    def _convert(self, values: _FieldValues) -> Mapping[str, Any]:
        if self.example_type is Pair:
            texts: dict[str, Any] = {"source": values.text("source"), "target": values.text("target")}
            return texts | ({"references": values.texts("references")} if "references" in values.values else {})
        if self.example_type is Document:
            return {"text": values.text("text")}
        if self.example_type is LabeledText:
            text, pair = values.text("text"), values.optional_text("pair")
            return {"text": text, "pair": pair, "label": self._label(values)}
        if self.example_type is TaggedSentence:
            words, tags = values.words("words"), values.class_names("tags")
            if len(words) != len(tags):
                message = f"{len(words)} words but {len(tags)} tags: expected one tag per word"
                values.fail(ProblemKind.MISSING_TAG, message)
            return {"words": words, "tags": tags}
        return {
            "id": values.optional_text("id") or "",
            "question": values.text("question"),
            "context": values.text("context"),
            "title": values.optional_text("title") or "",
            "answers": tuple(_answers(values)),
        }

    def _label(self, values: _FieldValues) -> str | float:
        match self.label_type:
            case LabelType.CLASS:
                return values.label("label")
            case LabelType.CLASSES:
                return values.optional_text("label") or ""
            case LabelType.SCORE:
                return values.number("label")


def check_fields(example_type: type[Example], names: Iterable[str], file: Path) -> None:
    """Raise a `DataProblem` if one of the names is not a field of this example type."""
    fields = REQUIRED_FIELDS[example_type] + OPTIONAL_FIELDS[example_type]
    for name in names:
        if name not in fields:
            message = f"there is no field {name!r} to give a column; the fields are {', '.join(fields)}"
            raise DataProblem(ProblemKind.MISSING_COLUMN, file, None, message)


class _FieldValues:
    """Values by field name, with one accessor for each expected type."""

    def __init__(
        self, values: Mapping[str, Any], file: Path, line: int, join: str | None, names: Mapping[str, Sequence[str]]
    ) -> None:
        self.values, self.file, self.line, self.join, self.names = values, file, line, join, names

    def fail(self, kind: ProblemKind, message: str) -> NoReturn:
        raise DataProblem(kind, self.file, self.line, message, text=message)

    def type_error(self, name: str, expected: str, kind: ProblemKind = ProblemKind.WRONG_TYPE) -> NoReturn:
        value = repr(self.values.get(name))
        self.fail(kind, f"{name!r} should be {expected}, found {value if len(value) < 80 else value[:77] + '...'}")

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
            if self.join is None:
                self.type_error(name, 'a string (set join=" " to join a list of strings)')
            return self.join.join(value)
        return self.type_error(name, "a string")

    def texts(self, name: str) -> tuple[str, ...]:
        """Return one or several texts."""
        value = self.values.get(name)
        texts = (value,) if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            return self.type_error(name, "a string or a list of strings")
        return tuple(texts)

    def optional_text(self, name: str) -> str | None:
        return None if self.values.get(name) is None else self.text(name)

    def label(self, name: str) -> str:
        """Return the class name of a row. A row whose texts are empty too is blank."""
        value = self.values.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            texts = [text for other, text in self.values.items() if other != name]
            blank = all(text is None or (isinstance(text, str) and not text.strip()) for text in texts)
            self.fail(ProblemKind.BLANK_ROW if blank else ProblemKind.EMPTY_LABEL, f"{name!r} is empty")
        return self.class_name(name, value)

    def number(self, name: str) -> float:
        value = self.values.get(name)
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except ValueError:
            number = math.nan
        return number if math.isfinite(number) else self.type_error(name, "a number", ProblemKind.NO_NUMBER)

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
            return tuple(self.class_name(name, tag) for tag in value)
        return self.type_error(name, "a list of tags")

    def class_name(self, name: str, value: object) -> str:
        """Return a class name, from a name or a label id."""
        names = self.names.get(name)
        class_id = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else None
        if names is not None and class_id is not None and not isinstance(value, bool):
            if class_id >= len(names) or class_id < 0:
                message = f"{name!r} is {class_id}, but class names are given only for 0 to {len(names) - 1}"
                self.fail(ProblemKind.WRONG_TYPE, message)
            return names[class_id]
        if isinstance(value, str | int):
            return str(value)
        return self.type_error(name, "a class name (a string or an integer)")


def _answers(values: _FieldValues) -> Iterable[tuple[str, int]]:
    """Yield answers given as SQuAD's nested list, as Hugging Face's two lists, or as one text and its start."""
    answers = values.values.get("answers")
    if answers is None and values.values.get("answer"):
        answers = [{"text": values.text("answer"), "answer_start": values.values.get("start", FREE_ANSWER)}]
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
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            values.type_error("answers", "answers with a `text` and an `answer_start`")
        yield text, start
