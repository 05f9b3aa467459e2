"""Ready recipes, one for each objective, to list, to read and to copy."""

from __future__ import annotations

import difflib
from importlib import resources


def names() -> list[str]:
    """The names of the ready recipes."""
    folder = resources.files("regard.training.recipe") / "preset_files"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def text(name: str) -> str:
    """A ready recipe, as it stands in its file."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no ready recipe {name!r}.{hint} There are {', '.join(names())}")
    return (resources.files("regard.training.recipe") / "preset_files" / f"{name}.toml").read_text(encoding="utf-8")


def title(name: str) -> str:
    """The first sentence of a recipe: what it is for."""
    return text(name).splitlines()[0].removeprefix("# ").partition(": ")[2]
