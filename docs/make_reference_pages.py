"""Write docs/recipe-reference.md and docs/command-reference.md from the code: `make docs`."""

import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined
from typer.main import get_command

from regard.cli.help_format import COMMON_OPTIONS, GROUPS, describe, first_sentence, option_names, value_name
from regard.cli.main import app
from regard.training.recipe.base import Section
from regard.training.recipe.schema import Recipe

DOCS = Path(__file__).parent

RECIPE_INTRO = """\
# Recipe reference

Every key of a recipe, written by `make docs` from the schema; a test fails if the page is stale.
[training.md](training.md) explains recipes, `regard recipes` lists the presets, and `regard train RECIPE --dry-run`
prints a recipe with all defaults.

A section with several variants is chosen by one key: `kind`, `load`, `preset` or `family`. A variant without other keys
may be written as a string: `optimizer = "adamw"`.
"""
COMMAND_INTRO = """\
# Command reference

Every command and option, written by `make docs` from the commands themselves; a test fails if the page is stale.
`regard COMMAND --help` prints the same.

Results go to standard output; progress, notes and errors to standard error. Exit codes: 0 success, 1 failure, 2 wrong
usage, 130 interrupted.
"""
TYPE_NAMES = {int: "integer", float: "number", str: "string", bool: "true or false", type(None): ""}


def recipe_page() -> str:
    """The page with every key of a recipe."""
    parts = [RECIPE_INTRO, "## Top level\n", section_table(Recipe, skip_sections=True)]
    for name, field in Recipe.model_fields.items():
        for section in section_classes(field.annotation):
            parts += section_blocks(section, f"[{name}]", 2)
    return "\n".join(parts)


def section_blocks(section: type[Section], path: str, level: int) -> list[str]:
    """The heading, the description and the keys of a section, then its inner sections."""
    variant = variant_key(section)
    heading = f"{'#' * level} `{path}`" + (f" with `{variant}`" if variant else "")
    blocks = [f"{heading}\n\n{' '.join((section.__doc__ or '').split())}\n", section_table(section)]
    for name, field in section.model_fields.items():
        for inner in section_classes(field.annotation):
            if not inner_is_documented_elsewhere(section, inner):
                blocks += section_blocks(inner, f"{path} {name}", level + 1)
    return blocks


def inner_is_documented_elsewhere(section: type[Section], inner: type[Section]) -> bool:
    """Distillation belongs to all objectives, AdamW to Muon too: their keys are listed once."""
    return first_owner(inner) is not section


def first_owner(inner: type[Section]) -> type[Section] | None:
    """The first section, in the order of the page, that has `inner` as the value of a key."""

    def search(section: type[Section]) -> type[Section] | None:
        classes = [each for field in section.model_fields.values() for each in section_classes(field.annotation)]
        if inner in classes:
            return section
        return next((owner for each in classes if (owner := search(each)) is not None), None)

    return search(Recipe)


def variant_key(section: type[Section]) -> str:
    """What chooses this variant: `kind = "adamw"`, `load = …`; empty for a section without variants."""
    for name in ("kind", "load", "preset", "family"):
        field = section.model_fields.get(name)
        if field is not None:
            values = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
            return f'{name} = "{values[0]}"' if len(values) == 1 else f"{name} = …"
    return ""


def section_table(section: type[Section], skip_sections: bool = False) -> str:
    """A row for each key."""
    lines = ["| key | value | default | |", "| --- | --- | --- | --- |"]
    for name, field in section.model_fields.items():
        if skip_sections and section_classes(field.annotation):
            continue
        if name == "kind" and get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
            continue  # it is in the heading
        kind = type_name(field.annotation, field.metadata)
        cells = [f"`{name}`", kind, default_text(field), " ".join((field.description or "").split())]
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else "It has no other key.\n"


def default_text(field: Any) -> str:
    """The default as it would be written in a recipe."""
    if field.is_required():
        return "required"
    value = field.default if field.default_factory is None else field.default_factory()
    if value is None or value is PydanticUndefined or value in ((), {}):
        return ""
    return f"`{toml_value(value)}`"


def toml_value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case tuple() | list():
            return f"[{', '.join(map(toml_value, value))}]"
        case Section():
            entries = {name: getattr(value, name) for name in ("kind", *sorted(value.model_fields_set - {"kind"}))}
            return "{ " + ", ".join(f"{name} = {toml_value(entry)}" for name, entry in entries.items()) + " }"
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)


def type_name(annotation: Any, metadata: Any = ()) -> str:
    """The type in words, with its limits."""
    limits = ", ".join(limit_text(each) for each in metadata if limit_text(each))
    name = plain_type_name(annotation)
    return f"{name} {limits}".strip()


def plain_type_name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(arguments[0], arguments[1:])
    if origin is Literal:
        return ", ".join(f"`{toml_value(value)}`" for value in arguments)
    if origin in (Union, types.UnionType):
        names = [type_name(each) for each in arguments if each is not type(None)]
        return " or ".join(dict.fromkeys(name for name in names if name))
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"{type_name(arguments[0])}s, as a list"
        return f"[{', '.join(type_name(each) for each in arguments)}]"
    if origin is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return f"`{variant_key(annotation)}`" if variant_key(annotation) else "table"
    return TYPE_NAMES.get(annotation, "name of a task")


def limit_text(limit: Any) -> str:
    """A limit of a number; nested metadata (pydantic's FieldInfo) has several."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    values = {sign: getattr(limit, name, None) for name, sign in signs.items()}
    parts = [f"{sign} {value:,}" for sign, value in values.items() if value is not None]
    parts += [text for each in getattr(limit, "metadata", ()) if (text := limit_text(each))]
    return ", ".join(parts)


def section_classes(annotation: Any) -> list[type[Section]]:
    """The sections that a value may be."""
    return list(dict.fromkeys(iter_section_classes(annotation)))


def iter_section_classes(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    elif get_origin(annotation) is not Literal:
        for argument in get_args(annotation):
            yield from iter_section_classes(argument)


def command_page() -> str:
    """The page with the arguments and options of every command, as `--help` has them."""
    commands = documented_commands()
    parts = [COMMAND_INTRO, "| command | |\n| --- | --- |"]
    for title, names in command_groups(commands).items():
        rows = [
            f"| [{name}](#regard-{name.replace(' ', '-')}) | {cell(first_sentence(commands[name].help))} |"
            for name in names
        ]
        parts.append("\n".join([f"| **{title}** | |", *rows]))
    common = [f"| `{name}` | {cell(sentence)} |" for name, sentence in COMMON_OPTIONS]
    parts.append("\nCommon options of all commands:\n\n| | |\n| --- | --- |\n" + "\n".join(common) + "\n")
    return "\n".join(parts + [command_block(name, command) for name, command in commands.items()])


def documented_commands() -> dict[str, Any]:
    """The commands that are not hidden, by name; of a group, those in it: `vectors train`."""
    result = {}
    for name, command in get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        named = {name: command} if inner is None else {f"{name} {each}": inner[each] for each in inner}
        result.update({key: value for key, value in named.items() if not value.hidden})
    return result


def command_groups(commands: dict[str, Any]) -> dict[str, list[str]]:
    """The names of the commands by the groups of `regard --help`."""
    groups = {
        title: [name for first in names for name in commands if name.partition(" ")[0] == first]
        for title, names in GROUPS.items()
    }
    grouped = {name for names in groups.values() for name in names}
    groups["More"] = [name for name in commands if name not in grouped]
    return {title: names for title, names in groups.items() if names}


def command_block(name: str, command: Any) -> str:
    """A command: what it does, how to call it, and a row for each argument and option."""
    context = command.make_context(f"regard {name}", [], resilient_parsing=True)
    paragraphs = [" ".join(paragraph.split()) for paragraph in inspect.cleandoc(command.help).split("\n\n")]
    call = " ".join(["regard", name, *command.collect_usage_pieces(context)])
    lines = [
        f"| `{cell(parameter_name(each))}` | {cell(describe(each, context))} |"
        for each in own_parameters(command, context)
    ]
    blocks = [f"## regard {name}", *paragraphs, f"`{call}`", "| | |\n| --- | --- |"]
    return "\n\n".join(blocks) + "\n" + "\n".join(lines) + "\n"


def own_parameters(command: Any, context: Any) -> list[Any]:
    """The arguments and options of a command without the common ones."""
    parameters = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    return [each for each in parameters if "--help" not in each.opts]


def parameter_name(parameter: Any) -> str:
    return value_name(parameter) if parameter.param_type_name == "argument" else option_names(parameter)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {"recipe-reference.md": recipe_page, "command-reference.md": command_page}


def main() -> None:
    """Write both pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
