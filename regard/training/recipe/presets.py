"""Preset recipes, at least one for each objective."""

from __future__ import annotations

from importlib import resources

from regard.transformer.suggestion import did_you_mean


def preset_names() -> list[str]:
    """List the names of the preset recipes."""
    folder = resources.files("regard.training.recipe") / "preset_files"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """Return the text of a preset recipe."""
    if name not in preset_names():
        hint = did_you_mean(name, preset_names())
        raise ValueError(f"no preset recipe {name!r}{hint}; available: {', '.join(preset_names())}")
    return (resources.files("regard.training.recipe") / "preset_files" / f"{name}.toml").read_text(encoding="utf-8")


def preset_title(name: str) -> str:
    """Return the title of a preset recipe: its first line after the colon."""
    return preset_text(name).splitlines()[0].removeprefix("# ").partition(": ")[2]
