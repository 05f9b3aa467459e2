"""The options of a task: fields of a dataclass, with what the command line needs to know about them.

    @dataclass(frozen=True, kw_only=True)
    class ShoutOptions:
        volume: int = option(3, at_least=1)
        \"\"\"How loud.\"\"\"

gives the keyword argument `volume` in Python and the option `--volume` of the command, with this sentence as its help.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, get_args, get_origin, get_type_hints


def option(default: Any, *, flags: tuple[str, ...] = (), at_least: int | None = None, json_only: bool = False) -> Any:
    """A field of an options class. `flags` are its names at the command line; the default is `--field-name`.

    `json_only`: only the JSON output of the command has it.
    """
    return field(default=default, metadata={"flags": flags, "at_least": at_least, "json_only": json_only})


@dataclass(frozen=True, kw_only=True)
class OptionField:
    """One option of a task, as the command line shows it."""

    name: str
    """The name of the field, and of the keyword argument in Python."""
    flags: tuple[str, ...]
    """The names at the command line."""
    sentence: str
    """What it does."""
    value_type: type
    """bool, int, float, str or an enumeration; the type of the elements if it can be repeated; a dataclass if it has
    options itself."""
    default: Any
    repeated: bool = False
    at_least: int | None = None
    json_only: bool = False
    inner: tuple[OptionField, ...] = ()
    """The options that belong to this one, if its value is a dataclass."""


def option_fields(options: type) -> tuple[OptionField, ...]:
    """Return the options of a dataclass, in the order of its fields."""
    hints, sentences = get_type_hints(options), field_sentences(options)
    return tuple(_option_field(each, hints[each.name], sentences.get(each.name, "")) for each in fields(options))


def options_from_keywords(options: type, keywords: Mapping[str, Any]) -> Any:
    """Make options from keyword arguments. A further flag is a further name: `num_beams` for `beam`.

    The options of an inner dataclass can be given directly: `temperature=0.8` for `sampling=Sampling(temperature=0.8)`.
    """
    other_names = {
        flag.removeprefix("--").replace("-", "_"): each.name
        for each in fields(options)
        for flag in each.metadata.get("flags", ())
    }
    values: dict[str, Any] = {}
    keywords = _gather_inner(options, keywords)
    for keyword, value in keywords.items():
        name = other_names.get(keyword, keyword)
        if name in values:
            raise ValueError(f"{name} and {keyword} are the same option: pass only one of them")
        values[name] = value
    return options(**{name: _to_choice(options, name, value) for name, value in values.items()})


def _to_choice(options: type, name: str, value: Any) -> Any:
    """Convert a string to a member of the field's enumeration, if it has one."""
    hint = get_type_hints(options).get(name)
    choices = [kind for kind in _union_members(hint) if isinstance(kind, enum.EnumMeta)]
    if not choices or not isinstance(value, str):
        return value
    try:
        return choices[0](value)
    except ValueError:
        expected = ", ".join(repr(choice) for choice in choices[0]._value2member_map_)
        raise ValueError(f"{name} is {value!r}; expected one of {expected}") from None


def _gather_inner(options: type, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the options of inner dataclasses by values of these dataclasses."""
    result = dict(keywords)
    for each in option_fields(options):
        inner = {name.name: result.pop(name.name) for name in each.inner if name.name in result}
        if inner and result.get(each.name) is not None:
            raise ValueError(f"{each.name} and {', '.join(inner)} are the same option: pass only one of them")
        if inner:
            result[each.name] = each.value_type(**inner)
    return result


def _option_field(described: Field[Any], annotation: Any, sentence: str) -> OptionField:
    kinds = [kind for kind in _union_members(annotation) if kind is not types.NoneType]
    repeated = get_origin(kinds[0]) is not None
    value_type = get_args(kinds[0])[0] if repeated else kinds[0]
    metadata: Mapping[str, Any] = described.metadata
    return OptionField(
        name=described.name,
        flags=metadata.get("flags") or (f"--{described.name.replace('_', '-')}",),
        sentence=sentence,
        value_type=value_type,
        default=None if described.default is MISSING else described.default,
        repeated=repeated,
        at_least=metadata.get("at_least"),
        json_only=metadata.get("json_only", False),
        inner=option_fields(value_type) if hasattr(value_type, "__dataclass_fields__") else (),
    )


def _union_members(annotation: Any) -> Iterator[Any]:
    if isinstance(annotation, types.UnionType):
        yield from get_args(annotation)
    else:
        yield annotation


def field_sentences(owner: type) -> dict[str, str]:
    """Return the sentence under each field of a class, base classes included, each on one line."""
    sentences: dict[str, str] = {}
    for base in reversed(owner.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for statement, following in zip(definition.body, definition.body[1:], strict=False):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    sentences[name] = " ".join(text.split())
    return sentences
