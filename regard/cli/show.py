"""`regard show`: the modules of a network."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.progress import write_note

if TYPE_CHECKING:
    from regard.transformer import config


def show(
    model: Annotated[str | None, typer.Argument(help="Model folder, or the name of a preset (bert-base).")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the config and the parameter count as one JSON object.")
    ] = False,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="For a model folder: report how every tensor was loaded.")
    ] = False,
) -> None:
    """Show the modules of MODEL as a tree, with shapes and parameter counts. Without MODEL, list the presets."""
    from regard.families.registry import presets

    if model is None:
        _list_presets()
        return
    if Path(model).exists():
        design, report = _load_folder(model, tensors)
    elif model in presets():
        design, report = _load_preset(model), None
    else:
        raise typer.BadParameter(f"{model!r} is neither a folder nor a preset. Presets: {', '.join(presets())}")
    if report:
        write_note(report)
    _print(design, as_json)


def _load_folder(folder: str, tensors: bool) -> tuple[config.Network, str]:
    from regard.checkpoint.load import load

    network, report = load(folder)
    return network.config, report.render() if tensors else report.summary()


def _load_preset(name: str) -> config.Network:
    from regard.families.registry import preset

    return preset(name)


def _print(design: config.Network, as_json: bool) -> None:
    from regard.transformer.config_json import to_json
    from regard.transformer.summary import count_parameters, module_tree, render_tree

    if as_json:
        sys.stdout.write(json.dumps({"parameters": count_parameters(design), "network": to_json(design)}) + "\n")
    else:
        sys.stdout.write(render_tree(module_tree(design)) + "\n")


def _list_presets() -> None:
    from regard.families.registry import preset, presets
    from regard.transformer.summary import count_parameters

    for name in presets():
        sys.stdout.write(f"{name:20} {count_parameters(preset(name)):>16,} parameters\n")
