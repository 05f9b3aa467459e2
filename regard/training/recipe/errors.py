"""Error messages for invalid recipes: the line and key, what was found, what was expected."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from regard.training.recipe import toml
from regard.training.recipe.legacy_keys import RENAMED_KEYS, original_address, upgrade_address
from regard.transformer.suggestion import closest, did_you_mean

KeyPath = Sequence[str | int]

TYPE_NAMES = {
    "int": "an integer",
    "float": "a number",
    "string": "a string",
    "bool": "true or false",
    "tuple": "a list",
    "dict": "a table: { key = value }",
    "model": "a table: { key = value }",
}

CONFLICT_PREFIX = "belongs to"
UNION_MEMBER = re.compile(r"constrained-\w+|[\w-]+\[.*\]|int|str|float|bool|none")
"""What pydantic appends to the location of a key whose value may have one of several types."""


@dataclass(frozen=True)
class RecipeSource:
    """The values of a recipe, and where they come from."""

    values: Mapping[str, Any]
    path: Path
    text: str
    overrides: Collection[str]
    """Keys that were set on the command line."""
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The old address of each key that `legacy_keys.upgrade` renamed, by its new one."""

    def locate(self, key_path: KeyPath) -> str:
        """Return the file and line of a key, or "on the command line"."""
        key = ".".join(map(str, key_path))
        if any(key == name or key.startswith(f"{name}.") for name in self.overrides):
            return "on the command line"
        line = toml.find_line(self.text, original_address(key, self.renamed).split("."))
        if line is None and any(name.startswith(f"{key}.") for name in self.overrides):
            return "on the command line"
        return f"{self.path}, line {line}" if line else f"{self.path}"


def format_errors(error: ValidationError, schema: type[BaseModel], source: RecipeSource) -> str:
    """Describe all errors, one per line: `recipe.toml, line 12: training.stpes: …`."""
    messages: dict[str, list[str]] = {}
    details = error.errors(include_url=False)
    if any(detail["loc"] == ("task",) for detail in details):
        details = [detail for detail in details if detail["loc"] != ("objective",)]  # a consequence of the wrong task
    for detail in details:
        key_path, models = _resolve_location(detail["loc"], schema)
        match detail["type"]:
            case "missing":
                where = source.locate(key_path[:-1])
            case "union_tag_invalid":
                where = source.locate([*key_path, "kind"])
            case _:
                where = source.locate(key_path)
        key, message = ".".join(map(str, key_path)), _describe_error(detail, key_path, models, schema)
        if message.startswith(CONFLICT_PREFIX) and any(message in others for others in messages.values()):
            continue  # the same conflict, at another key of the table
        messages.setdefault(f"{where}: {f'{key}: ' if key else ''}", []).append(message)
    return "\n".join(f"{where}{_merge_messages(of_key)}" for where, of_key in messages.items())


def _merge_messages(messages: Sequence[str]) -> str:
    """Join the errors of one key. A value that may have several types has an error for each of them."""
    messages = list(dict.fromkeys(messages))
    expected, found = zip(*(message.rpartition(", found ")[::2] for message in messages), strict=True)
    if len(messages) > 1 and len({*found}) == 1 and all(part.startswith("expected ") for part in expected):
        return f"expected {' or '.join(part.removeprefix('expected ') for part in expected)}, found {found[0]}"
    return "; ".join(messages)


def _describe_error(
    detail: Mapping[str, Any], key_path: KeyPath, models: Sequence[type[BaseModel]], schema: type[BaseModel]
) -> str:
    value = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            return _describe_unknown_key(key_path, models, schema)
        case "missing":
            return f"is missing{_field_description(key_path, models)}"
        case "union_tag_not_found" | "union_tag_invalid":
            tags = _allowed_tags(detail, models)
            tag = detail.get("ctx", {}).get("tag")
            if tag is None and isinstance(value, Mapping) and not tags[0].startswith("`"):
                return f"`kind` is missing: expected one of {', '.join(tags)}"
            return f"expected one of {', '.join(tags)}, found {tag or value!r}{did_you_mean(str(tag), tags)}"
        case "literal_error":
            expected = detail["ctx"]["expected"]
            allowed = expected.replace("'", "").replace(" or ", ", ").split(", ")
            return f"expected {expected}, found {value!r}{did_you_mean(str(value), allowed)}"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "too_short":
            return f"expected at least {detail['ctx']['min_length']} item, found none"
    return f"expected {_expected_type(detail)}, found {value!r}"


def _describe_unknown_key(key_path: KeyPath, models: Sequence[type[BaseModel]], schema: type[BaseModel]) -> str:
    """Suggest the closest key of the same table, or else of another table."""
    address, key = ".".join(map(str, key_path)), str(key_path[-1])
    if (new_address := upgrade_address(address)) != address:
        return f"old name of {new_address}: use only the new one"
    for variants in _unions(schema):
        others = [model for model in variants if key in model.model_fields]
        if models[0] in variants and others:
            other, this = _variant_name(others[0]), _variant_name(models[0])
            return f"{CONFLICT_PREFIX} {other}, not to {this}: remove one of the two"
    known = [name for model in models for name in model.model_fields]
    old_names = {old.rpartition(".")[2]: upgrade_address(old) for old in reversed(RENAMED_KEYS)}
    addresses = {**old_names, **dict(_key_addresses(schema, ""))}
    suggestion = None
    if key not in addresses:
        suggestion = closest(key, known) or min({*key.split("_")} & {*known}, default=None)
    if suggestion is None and (name := closest(key, addresses)):
        suggestion = addresses[name]
    if suggestion is None:
        return f"unknown key; known keys: {', '.join(dict.fromkeys(known))}"
    return f"unknown key (did you mean {suggestion!r}?)"


def _key_addresses(model: type[BaseModel], table: str) -> Iterator[tuple[str, str]]:
    """Yield the name and address of all keys of all tables; of equal names, that of the outermost table comes last."""
    for name, info in model.model_fields.items():
        for inner in _models(info.annotation):
            yield from _key_addresses(inner, f"{table}{name}.")
    for name in model.model_fields:
        yield name, f"{table}{name}"


def _unions(model: type[BaseModel]) -> Iterator[list[type[BaseModel]]]:
    """Yield the variants of each field that may hold one of several tables."""
    for info in model.model_fields.values():
        variants = list(_models(info.annotation))
        if len(variants) > 1:
            yield variants
        for variant in variants:
            yield from _unions(variant)


def _variant_name(model: type[BaseModel]) -> str:
    """Describe a variant of a table: by its kind, or by its first key."""
    kind = model.model_fields.get("kind")
    has_kind = kind is not None and kind.default and not kind.is_required()
    return f"kind = {kind.default!r}" if kind and has_kind else f"`{next(iter(model.model_fields))}`"


def _expected_type(detail: Mapping[str, Any]) -> str:
    kind = detail["type"].partition("_")[0]
    if detail["type"].endswith(("_parsing", "_type", "_from_float")) and kind in TYPE_NAMES:
        return TYPE_NAMES[kind]
    return str(detail["msg"]).replace("Input should be ", "")


def _allowed_tags(detail: Mapping[str, Any], models: Sequence[type[BaseModel]]) -> list[str]:
    """List the variants of a table: their kinds, or the keys that distinguish them."""
    expected = detail.get("ctx", {}).get("expected_tags")
    if expected:
        return [tag.strip().strip("'") for tag in str(expected).split(",")]
    tags = []
    for model in models:
        kind = model.model_fields.get("kind")
        first = next(iter(model.model_fields))
        tags.append(str(kind.default) if kind and kind.default and not kind.is_required() else f"`{first} = …`")
    return tags


def _field_description(key_path: KeyPath, models: Sequence[type[BaseModel]]) -> str:
    for model in models:
        info = model.model_fields.get(str(key_path[-1]))
        if info is not None and info.description:
            first = info.description.splitlines()[0]
            return f": {first[0].lower()}{first[1:]}"
    return ""


def _resolve_location(location: KeyPath, schema: type[BaseModel]) -> tuple[list[str | int], list[type[BaseModel]]]:
    """Return the path of a key in the file, and the models of the table that it belongs to.

    Pydantic's locations also contain the tags of variants; they are removed. If no variant of a table matched, the
    models are all its variants.
    """
    key_path: list[str | int] = []
    models: list[type[BaseModel]] = [schema]
    inner: list[type[BaseModel]] = [schema]
    for part in location:
        variant = [model for model in inner if part in _variant_tags(model)]
        if variant and inner is not models:
            inner = models = variant
            continue
        if key_path and not inner and isinstance(part, str) and UNION_MEMBER.fullmatch(part):
            continue
        key_path.append(part)
        models = inner
        fields = [model.model_fields[str(part)] for model in models if str(part) in model.model_fields]
        inner = [model for info in fields for model in _models(info.annotation)]
    return key_path, inner if len(inner) > 1 else models


def _variant_tags(model: type[BaseModel]) -> set[str]:
    """Return the tags that pydantic uses for a model that is a variant of a table."""
    kind = model.model_fields.get("kind")
    kinds = {str(kind.default)} if kind and not kind.is_required() else set()
    return kinds | {f"<{name}>" for name in ("kind", "load", "preset", "family") if name in model.model_fields}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not typing.get_origin(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
