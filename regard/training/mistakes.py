"""What is wrong with a recipe, told so that a person can mend it: where, what was found, what was expected."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from regard.training import toml

Place = Sequence[str | int]

PLAIN = {
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "bool": "true or false",
    "tuple": "a list",
    "dict": "a table: { key = value }",
    "model": "a table: { key = value }",
}


@dataclass(frozen=True)
class Found:
    """What was read, and from where."""

    values: Mapping[str, Any]
    path: Path
    text: str
    overridden: Collection[str]
    """Keys that were given on the command line."""

    def where(self, place: Place) -> str:
        """The file and the line of a key, or the command line."""
        key = ".".join(map(str, place))
        if any(key == name or key.startswith(f"{name}.") for name in self.overridden):
            return "on the command line"
        line = toml.line_of(self.text, place)
        return f"{self.path}, line {line}" if line else f"{self.path}"


def explain(error: ValidationError, whole: type[BaseModel], given: Found) -> str:
    """All mistakes, one on a line: `recipe.toml, line 12: training.stpes: …`."""
    lines = []
    mistakes = error.errors(include_url=False)
    if any(found["loc"] == ("task",) for found in mistakes):
        mistakes = [found for found in mistakes if found["loc"] != ("objective",)]  # which follows from the task
    for found in mistakes:
        place, models = _walk(found["loc"], whole)
        where = given.where(place[:-1] if found["type"] == "missing" else place)
        key = ".".join(map(str, place))
        lines.append(f"{where}: {f'{key}: ' if key else ''}{_said(found, place, models, whole)}")
    return "\n".join(dict.fromkeys(lines))


def _said(found: Mapping[str, Any], place: Place, models: Sequence[type[BaseModel]], whole: type[BaseModel]) -> str:
    known = [name for model in models for name in model.model_fields]
    value = found["input"]
    match found["type"]:
        case "extra_forbidden":
            return f"there is no such key; {_nearest(str(place[-1]), known, whole)}"
        case "missing":
            return f"is missing{_about(place, models)}"
        case "union_tag_not_found" | "union_tag_invalid":
            tags = _tags(found, models)
            given = found.get("ctx", {}).get("tag")
            near = difflib.get_close_matches(str(given), tags, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            return f"expected one of {', '.join(tags)}, found {given or value!r}{hint}"
        case "literal_error":
            expected = found["ctx"]["expected"]
            near = difflib.get_close_matches(str(value), expected.replace("'", "").replace(" or ", ", ").split(", "), 1)
            return f"expected {expected}, found {value!r}{f' (did you mean {near[0]!r}?)' if near else ''}"
        case "value_error":
            return str(found["ctx"]["error"])
    return f"expected {_expected(found)}, found {value!r}"


def _nearest(key: str, known: Sequence[str], whole: type[BaseModel]) -> str:
    """The nearest key of the same table, or else of another one."""
    if near := difflib.get_close_matches(key, known, 1):
        return f"did you mean {near[0]!r}?"
    elsewhere = {
        name: f"{section}.{name}"
        for section, field in whole.model_fields.items()
        for part in _models(field.annotation)
        for name in part.model_fields
    }
    if near := difflib.get_close_matches(key, elsewhere, 1):
        return f"did you mean {elsewhere[near[0]]!r}?"
    return f"known are {', '.join(dict.fromkeys(known))}"


def _expected(found: Mapping[str, Any]) -> str:
    kind = found["type"].partition("_")[0]
    if found["type"].endswith(("_parsing", "_type", "_from_float")) and kind in PLAIN:
        return PLAIN[kind]
    return str(found["msg"]).replace("Input should be ", "")


def _tags(found: Mapping[str, Any], models: Sequence[type[BaseModel]]) -> list[str]:
    """What a choice offers: kinds, or the keys that tell the cases apart."""
    expected = found.get("ctx", {}).get("expected_tags")
    if expected:
        return [tag.strip().strip("'") for tag in str(expected).split(",")]
    names = []
    for model in models:
        kind = model.model_fields.get("kind")
        first = next(iter(model.model_fields))
        names.append(str(kind.default) if kind and kind.default and not kind.is_required() else f"`{first} = …`")
    return names


def _about(place: Place, models: Sequence[type[BaseModel]]) -> str:
    for model in models:
        field = model.model_fields.get(str(place[-1]))
        if field is not None and field.description:
            first = field.description.splitlines()[0]
            return f": {first[0].lower()}{first[1:]}"
    return ""


def _walk(location: Place, whole: type[BaseModel]) -> tuple[list[str | int], list[type[BaseModel]]]:
    """Where a mistake stands in the file, without the names of cases that pydantic puts between; and what may be there:
    the models that the last key is looked up in, or, where a case was not found, those among which it chooses.
    """
    place: list[str | int] = []
    models: list[type[BaseModel]] = [whole]
    inside: list[type[BaseModel]] = [whole]
    for part in location:
        case = [model for model in inside if part in _cases(model)]
        if case and inside is not models:
            inside = models = case
            continue
        place.append(part)
        models = inside
        fields = [model.model_fields[str(part)] for model in models if str(part) in model.model_fields]
        inside = [model for field in fields for model in _models(field.annotation)]
    return place, inside if len(inside) > 1 else models


def _cases(model: type[BaseModel]) -> set[str]:
    """What pydantic calls a model where it is one of several."""
    kind = model.model_fields.get("kind")
    named = {str(kind.default)} if kind and not kind.is_required() else set()
    return named | {f"<{name}>" for name in ("kind", "load", "preset", "family") if name in model.model_fields}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not typing.get_origin(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
