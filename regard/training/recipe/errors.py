"""What is wrong with a recipe, told so that a person can mend it: where, what was found, what was expected."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from regard.training.recipe import toml

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


ELSEWHERE = {
    "lr": "rate",
    "learning_rate": "rate",
    "weight_decay": "decay",
    "eps": "epsilon",
    "warmup_steps": "warmup",
    "max_steps": "steps",
    "batch_size": "tokens",
    "gradient_accumulation_steps": "accumulate",
    "label_smoothing": "smoothing",
    "vocab_size": "size",
    "d_model": "model_dim",
    "hidden_size": "model_dim",
    "d_ff": "inner_dim",
    "max_length": "length",
}
"""What other tools call our keys."""
GOES = "goes with"
UNIONS = re.compile(r"constrained-\w+|[\w-]+\[.*\]|int|str|float|bool|none")
"""What pydantic puts behind the name of a key whose value may be of several types."""


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
        if line is None and any(name.startswith(f"{key}.") for name in self.overridden):
            return "on the command line"
        return f"{self.path}, line {line}" if line else f"{self.path}"


def explain(error: ValidationError, whole: type[BaseModel], given: Found) -> str:
    """All mistakes, one on a line: `recipe.toml, line 12: training.stpes: …`."""
    told: dict[str, list[str]] = {}
    mistakes = error.errors(include_url=False)
    if any(found["loc"] == ("task",) for found in mistakes):
        mistakes = [found for found in mistakes if found["loc"] != ("objective",)]  # which follows from the task
    for found in mistakes:
        place, models = _walk(found["loc"], whole)
        match found["type"]:
            case "missing":
                where = given.where(place[:-1])
            case "union_tag_invalid":
                where = given.where([*place, "kind"])
            case _:
                where = given.where(place)
        key, said = ".".join(map(str, place)), _said(found, place, models, whole)
        if said.startswith(GOES) and any(said in others for others in told.values()):
            continue  # the same of each key of a table
        told.setdefault(f"{where}: {f'{key}: ' if key else ''}", []).append(said)
    return "\n".join(f"{where}{_together(said)}" for where, said in told.items())


def _together(said: Sequence[str]) -> str:
    """What is wrong with one key, in one line: where its value may be of several types, each has its own complaint."""
    said = list(dict.fromkeys(said))
    expected, found = zip(*(one.rpartition(", found ")[::2] for one in said), strict=True)
    if len(said) > 1 and len({*found}) == 1 and all(one.startswith("expected ") for one in expected):
        return f"expected {' or '.join(one.removeprefix('expected ') for one in expected)}, found {found[0]}"
    return "; ".join(said)


def _said(found: Mapping[str, Any], place: Place, models: Sequence[type[BaseModel]], whole: type[BaseModel]) -> str:
    value = found["input"]
    match found["type"]:
        case "extra_forbidden":
            return _unknown(str(place[-1]), models, whole)
        case "missing":
            return f"is missing{_about(place, models)}"
        case "union_tag_not_found" | "union_tag_invalid":
            tags = _tags(found, models)
            given = found.get("ctx", {}).get("tag")
            if given is None and isinstance(value, Mapping) and not tags[0].startswith("`"):
                return f"`kind` is missing: expected one of {', '.join(tags)}"
            near = difflib.get_close_matches(str(given), tags, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            return f"expected one of {', '.join(tags)}, found {given or value!r}{hint}"
        case "literal_error":
            expected = found["ctx"]["expected"]
            near = difflib.get_close_matches(str(value), expected.replace("'", "").replace(" or ", ", ").split(", "), 1)
            return f"expected {expected}, found {value!r}{f' (did you mean {near[0]!r}?)' if near else ''}"
        case "value_error":
            return str(found["ctx"]["error"])
        case "too_short":
            return f"expected at least {found['ctx']['min_length']}, found none"
    return f"expected {_expected(found)}, found {value!r}"


def _unknown(key: str, models: Sequence[type[BaseModel]], whole: type[BaseModel]) -> str:
    """What to say of a key that is not known: the nearest one of the same table, or else of another one."""
    for cases in _choices(whole):
        others = [model for model in cases if key in model.model_fields]
        if models[0] in cases and others:
            return f"{GOES} {_case(others[0])}, not with {_case(models[0])}: leave out one of the two"
    known = [name for model in models for name in model.model_fields]
    elsewhere = dict(_addresses(whole, ""))
    meant = ELSEWHERE.get(key, key)
    if meant in known:
        return f"there is no such key; did you mean {meant!r}?"
    if meant not in elsewhere and (near := difflib.get_close_matches(meant, known, 1)):
        return f"there is no such key; did you mean {near[0]!r}?"
    if near := difflib.get_close_matches(meant, elsewhere, 1):
        return f"there is no such key; did you mean {elsewhere[near[0]]!r}?"
    return f"there is no such key; known are {', '.join(dict.fromkeys(known))}"


def _addresses(model: type[BaseModel], table: str) -> Iterator[tuple[str, str]]:
    """All keys of all tables, the outer ones last: where two have one name, they are the ones that count."""
    for name, field in model.model_fields.items():
        for part in _models(field.annotation):
            yield from _addresses(part, f"{table}{name}.")
    for name in model.model_fields:
        yield name, f"{table}{name}"


def _choices(model: type[BaseModel]) -> Iterator[list[type[BaseModel]]]:
    """All places where one of several tables may stand."""
    for field in model.model_fields.values():
        cases = list(_models(field.annotation))
        if len(cases) > 1:
            yield cases
        for case in cases:
            yield from _choices(case)


def _case(model: type[BaseModel]) -> str:
    """How a table is told from others that may stand in its place."""
    kind = model.model_fields.get("kind")
    named = kind is not None and kind.default and not kind.is_required()
    return f"kind = {kind.default!r}" if kind and named else f"`{next(iter(model.model_fields))}`"


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
        if place and not inside and isinstance(part, str) and UNIONS.fullmatch(part):
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
