"""From values by name (the cells of a row, the keys of an object) to a typed example."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from regard.data.example import Answer, Example, Labelled, Pair, Plain, Question, Tagged
from regard.data.formats import Scheme
from regard.data.tag_schemes import recognise, to_bio
from regard.tokenization.text_files import DataError

E = TypeVar("E", bound=Example)

NEEDED: dict[type[Example], tuple[str, ...]] = {
    Pair: ("source", "target"),
    Plain: ("text",),
    Labelled: ("text", "label"),
    Tagged: ("words", "tags"),
    Question: ("question", "context"),
}
OPTIONAL: dict[type[Example], tuple[str, ...]] = {
    Pair: (),
    Plain: (),
    Labelled: ("pair",),
    Tagged: (),
    Question: ("id", "title", "answers", "answer", "start"),
}


class Label(Enum):
    """What a label is."""

    NAME = "name"
    NUMBER = "number"


@dataclass(frozen=True, kw_only=True)
class Builder:
    """Makes examples of one kind from values by field name, and says what is wrong where it cannot."""

    kind: type[Example]
    label: Label = Label.NAME
    join: str | None = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def build(self, found: Mapping[str, Any], file: Path, line: int) -> Example:
        """The example that these values make."""
        values = _Values(found, file, line, self.join, self.names)
        origin: dict[str, Any] = dict(file=file, line=line)
        if self.kind is Pair:
            return Pair(source=values.text("source"), target=values.text("target"), **origin)
        if self.kind is Plain:
            return Plain(text=values.text("text"), **origin)
        if self.kind is Labelled:
            label = values.name("label") if self.label is Label.NAME else values.number("label")
            return Labelled(text=values.text("text"), pair=values.maybe_text("pair"), label=label, **origin)
        if self.kind is Tagged:
            return self._tagged(values, origin)
        return _question(values, origin)

    def _tagged(self, values: _Values, origin: dict[str, Any]) -> Tagged:
        words, tags = values.texts("words"), values.list_of_names("tags")
        if len(words) != len(tags):
            values.fail(f"{len(words)} words and {len(tags)} tags: each word needs one tag")
        scheme = recognise([tags])
        if scheme in (Scheme.BIO, Scheme.IOB1):
            scheme = Scheme.LENIENT  # one sentence does not tell which of the two, and this reads both
        return Tagged(words=words, tags=to_bio(tags, scheme, values.file, [values.line] * len(tags)), **origin)


def check_fields(kind: type[Example], asked: Iterable[str], file: Path) -> None:
    """Stop where a column or key is given for a field that this kind of example does not have."""
    known = NEEDED[kind] + OPTIONAL[kind]
    for name in asked:
        if name not in known:
            raise DataError(file, None, f"{kind.__name__} has no field {name!r}; its fields are {', '.join(known)}")


def missing(kind: type[Example], name: str, found: Iterable[str], file: Path, line: int, how: str) -> DataError:
    """What to say where a field's column or key is not there."""
    there = ", ".join(str(one) for one in found)[:200] or "nothing"
    return DataError(
        file, line, f"there is no {name!r}, which {kind.__name__} needs; found {there}. Say where it is: {how}"
    )


class _Values:
    """Values by field name, read with the type that is expected of them."""

    def __init__(
        self, values: Mapping[str, Any], file: Path, line: int, join: str | None, names: Mapping[str, Sequence[str]]
    ) -> None:
        self.values, self.file, self.line, self.join, self.names = values, file, line, join, names

    def fail(self, said: str) -> NoReturn:
        raise DataError(self.file, self.line, said)

    def expected(self, name: str, what: str) -> NoReturn:
        found = repr(self.values.get(name))
        self.fail(f"{name!r} should be {what}, found {found if len(found) < 80 else found[:77] + '...'}")

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            if self.join is None:
                self.expected(name, 'one text (give join=" " to make one of several)')
            return self.join.join(value)
        return self.expected(name, "a text")

    def maybe_text(self, name: str) -> str | None:
        return None if self.values.get(name) is None else self.text(name)

    def name(self, name: str) -> str:
        return self._named(name, self.values.get(name))

    def number(self, name: str) -> float:
        value = self.values.get(name)
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except ValueError:
            number = math.nan
        return number if math.isfinite(number) else self.expected(name, "a number")

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name)
        if isinstance(value, str):
            return tuple(value.split())
        if isinstance(value, Sequence) and all(isinstance(one, str) for one in value):
            return tuple(value)
        return self.expected(name, "a list of words")

    def list_of_names(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name)
        if isinstance(value, str):
            return tuple(value.split())
        if isinstance(value, Sequence):
            return tuple(self._named(name, one) for one in value)
        return self.expected(name, "a list of tags")

    def _named(self, name: str, value: object) -> str:
        names = self.names.get(name)
        number = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else None
        if names is not None and number is not None and not isinstance(value, bool):
            if number >= len(names) or number < 0:
                self.fail(f"{name!r} is {number}, and there are names for 0 to {len(names) - 1}")
            return names[number]
        if isinstance(value, str | int):
            return str(value)
        return self.expected(name, "a name")


def _question(values: _Values, origin: dict[str, Any]) -> Question:
    return Question(
        id=values.maybe_text("id") or str(values.line),
        question=values.text("question"),
        context=values.text("context"),
        title=values.maybe_text("title") or "",
        answers=tuple(_answers(values)),
        **origin,
    )


def _answers(values: _Values) -> Iterable[Answer]:
    """Answers as SQuAD's nested list, as Hugging Face's two lists, or as one text and its start."""
    given = values.values.get("answers")
    if given is None and values.values.get("answer"):
        given = [{"text": values.text("answer"), "answer_start": values.values.get("start")}]
    if isinstance(given, Mapping):
        texts, starts = given.get("text"), given.get("answer_start")
        if not isinstance(texts, Sequence) or not isinstance(starts, Sequence) or len(texts) != len(starts):
            values.expected("answers", "`text` and `answer_start`, two lists of one length")
        given = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    for one in cast(Sequence[Any], given or ()):
        text = one.get("text") if isinstance(one, Mapping) else None
        start = one.get("answer_start") if isinstance(one, Mapping) else None
        if isinstance(start, str) and start.isdecimal():
            start = int(start)
        if not isinstance(text, str) or not isinstance(start, int):
            values.expected("answers", "answers with a `text` and an `answer_start`")
        yield Answer(text=text, start=start)
