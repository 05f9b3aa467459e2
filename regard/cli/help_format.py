"""`--help` of all commands: whole sentences, commands in groups by what a person wants, values with names."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from typer.core import TyperCommand

from regard.tasks.registry import TASKS

GROUPS = {
    "Start": ("demo", "info", "recipes", "history"),
    "Data": ("doctor", "tokenize"),
    "Train": ("train", "plot", "evaluate", "vectors", "plan"),
    "Use": (*TASKS, "run", "search", "index", "batch", "serve"),
    "Look inside": ("show", "look"),
    "Convert": ("convert",),
}
"""The commands by what a person wants. A command that is in no group is listed last."""
COMMON_OPTIONS = (
    ("-q, --quiet", "Write errors only to standard error: no notes, no progress."),
    ("-v, --verbose", "Write more to standard error: the load report, the native kernels, full errors."),
    ("-h, --help", "Show this help."),
)
INDENT, MAX_COLUMN = 2, 26
VALUE_NAMES = {int: "NUMBER", float: "NUMBER", str: "TEXT"}


class DocumentedCommand(TyperCommand):
    """A command whose help has whole sentences and understandable names of values."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options."""
        parameters = [each for each in self.get_params(ctx) if not getattr(each, "hidden", False)]
        arguments = [each for each in parameters if each.param_type_name == "argument"]
        options = [each for each in parameters if each.param_type_name == "option" and "--help" not in each.opts]
        write_table(formatter, "Arguments", [(value_name(each), describe(each, ctx)) for each in arguments])
        write_table(formatter, "Options", [(option_names(each), describe(each, ctx)) for each in options])
        write_table(formatter, "Common options", COMMON_OPTIONS)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS] MODEL [TEXT]` of the usage line."""
        pieces = ["[OPTIONS]"]
        for each in self.get_params(ctx):
            if each.param_type_name == "argument":
                name = value_name(each)
                pieces.append(name if each.required else f"[{name}]")
        return pieces


def write_table(formatter: Any, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Write a section of names and sentences. Long names have a line of their own, long sentences several."""
    if not rows:
        return
    column = INDENT + min(MAX_COLUMN, max(len(name) for name, _ in rows)) + 2
    width = max(20, formatter.width - column)
    with formatter.section(title):
        for name, sentence in rows:
            lines = textwrap.wrap(sentence, width, break_on_hyphens=False) or [""]
            start = " " * INDENT + name
            if len(start) + 2 > column:
                formatter.write(start + "\n")
            else:
                formatter.write(f"{start:{column}}{lines.pop(0)}".rstrip() + "\n")
            for line in lines:
                formatter.write(" " * column + line + "\n")


def option_names(option: Any) -> str:
    """Return the names of an option with the name of its value: `-o, --output FOLDER`."""
    names = sorted(option.opts, key=lambda name: name.startswith("--"))
    if option.secondary_opts:
        return f"{', '.join(names)} / {', '.join(option.secondary_opts)}"
    return ", ".join(names) if option.is_flag else f"{', '.join(names)} {value_name(option)}"


def value_name(parameter: Any) -> str:
    """Return what help calls the value of a parameter."""
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    kind = parameter.type_descriptor
    if kind.is_choice:
        return "|".join(str(getattr(choice, "value", choice)) for choice in kind.choices)
    name = "FILE" if kind.is_path else VALUE_NAMES.get(kind.annotation, "TEXT")
    return f"{name}..." if parameter.multiple else name


def describe(parameter: Any, ctx: Any) -> str:
    """Return the sentence of a parameter, with its default value."""
    sentence = " ".join((parameter.help or "").split())
    default = parameter.get_default(ctx, call=False)
    is_silent = (
        not parameter.show_default or default in (None, "", False, (), []) or parameter.param_type_name == "argument"
    )
    if is_silent or sentence.endswith("]"):
        return sentence
    if parameter.param_type_name == "option" and parameter.secondary_opts:
        default = parameter.opts[0].lstrip("-")
    return f"{sentence} [{getattr(default, 'value', default)}]"


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text."""
    paragraph = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence + dot.strip()


def write_command_groups(formatter: Any, sentences: dict[str, str]) -> None:
    """Write the commands in groups, each with its whole first sentence."""
    width = max(map(len, sentences))
    grouped = {name for names in GROUPS.values() for name in names}
    groups: Iterable[tuple[str, Sequence[str]]] = [
        *GROUPS.items(),
        ("More", [name for name in sentences if name not in grouped]),
    ]
    for title, names in groups:
        write_table(formatter, title, [(f"{name:{width}}", sentences[name]) for name in names if name in sentences])
