"""`regard show`: what a model is made of."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.transformer import config


def show(
    model: Annotated[str | None, typer.Argument(help="A model's folder, or the name of a preset (bert-base).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The config and the count as one JSON object.")] = False,
    tensors: Annotated[bool, typer.Option("--tensors", help="Of a folder: tell the fate of every tensor.")] = False,
) -> None:
    """Show the parts of MODEL as a tree, with shapes and parameter counts. Without MODEL, list the presets."""
    from regard.families.registry import presets

    if model is None:
        _list_presets()
        return
    if Path(model).exists():
        design, report = _of_folder(model, tensors)
    elif model in presets():
        design, report = _of_preset(model), None
    else:
        raise typer.BadParameter(f"{model!r} is neither a folder nor a preset. Presets: {', '.join(presets())}")
    if report:
        sys.stderr.write(report + "\n")
    _print(design, as_json)


def _of_folder(folder: str, tensors: bool) -> tuple[config.Network, str]:
    from regard.checkpoint.load import load

    network, report = load(folder)
    return network.config, report.render() if tensors else report.summary()


def _of_preset(name: str) -> config.Network:
    from regard.families.registry import preset

    return preset(name)


def _print(design: config.Network, as_json: bool) -> None:
    from regard.transformer.config_json import to_json
    from regard.transformer.module_tree import count, render, tree

    if as_json:
        sys.stdout.write(json.dumps({"parameters": count(design), "network": to_json(design)}) + "\n")
    else:
        sys.stdout.write(render(tree(design)) + "\n")


def _list_presets() -> None:
    from regard.families.registry import preset, presets
    from regard.transformer.module_tree import count

    for name in presets():
        sys.stdout.write(f"{name:20} {count(preset(name)):>16,} parameters\n")
