"""Preset recipes, at least one for each objective."""

from __future__ import annotations

import difflib
from importlib import resources


def preset_names() -> list[str]:
    """List the names of the preset recipes."""
    folder = resources.files("regard.training.recipe") / "preset_files"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """Return the text of a preset recipe."""
    if name not in preset_names():
        close = difflib.get_close_matches(name, preset_names(), 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no preset recipe {name!r}.{hint} Available: {', '.join(preset_names())}")
    return (resources.files("regard.training.recipe") / "preset_files" / f"{name}.toml").read_text(encoding="utf-8")


def preset_title(name: str) -> str:
    """Return the title of a preset recipe: its first line after the colon."""
    return preset_text(name).splitlines()[0].removeprefix("# ").partition(": ")[2]
