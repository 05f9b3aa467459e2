"""From a network to a folder that others can open.

A network that is exactly a published family's is saved in that family's layout, and opens in Hugging Face's library.
Any other is saved under our own names, and `save` says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint.files import CONFIG, write_json, write_tensors
from regard.checkpoint.load import NATIVE, AnyNetwork
from regard.checkpoint.report import Origin
from regard.families.family import ConfigError, alike
from regard.families.registry import FAMILIES
from regard.families.table import places
from regard.transformer import config
from regard.transformer.config_json import to_json


def save(
    network: AnyNetwork,
    folder: str | Path,
    *,
    origin: Origin | None = None,
    dtype: torch.dtype | None = None,
    own_names: bool = False,
) -> str:
    """Write a network to a folder, and say in which layout: the name of a family, or "regard".

    `origin` is the one of the report that the network was loaded with: its config is written again key by key. With
    `own_names` the network is saved under our own names even if a family's layout would do.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give the name of a folder")
    values = None if own_names else _published_config(network.config, origin)
    tensors = _own_names(network) if values is None else _their_names(network, values)
    if dtype is not None:
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    if values is None:
        values = {"model_type": NATIVE, "network": to_json(network.config)}
    stored = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    said = [key for key in ("dtype", "torch_dtype") if key in values] or ["dtype"]
    values = {**values, **dict.fromkeys(said, stored)}
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder, tensors)
    write_json(folder / CONFIG, values)
    return str(values["model_type"])


def _published_config(design: config.Network, origin: Origin | None) -> dict[str, Any] | None:
    """The config in a family's own words: the original one where it still describes the network."""
    if origin is not None:
        try:
            read, _ = FAMILIES[origin.family].read(origin.theirs)
        except ConfigError:
            read = None
        if read is not None and alike(read, design):
            return dict(origin.theirs)
    for family in FAMILIES.values():
        written = family.write(design)
        if written is not None:
            return written
    return None


def _their_names(network: AnyNetwork, values: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors under a family's names; of several names for the same tensor only the first."""
    family = FAMILIES[values["model_type"]]
    architecture = family.architectures[values["architectures"][0]]
    entries = (*family.weights(network.config), *architecture.weights)
    parameters = dict(network.named_parameters(remove_duplicate=False))
    written: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for place in places(entries, architecture.base, list(parameters)):
        ours = [parameters[name] for name in place.ours]
        if id(ours[0]) in written and not place.repeat:
            continue
        written.update(id(value) for value in ours)
        tensor = place.how.write([value.detach() for value in ours])
        tensors[place.theirs] = tensor.clone() if place.repeat else tensor
    _check_all_written(network, written, family.name)
    kind = next(iter(tensors.values())).dtype
    computed = architecture.computed(network.config) if architecture.computed else {}
    return tensors | {name: tensor.to(kind).clone() for name, tensor in computed.items()}


def _check_all_written(network: nn.Module, written: set[int], family: str) -> None:
    left = [name for name, value in network.named_parameters() if id(value) not in written]
    if left:
        raise AssertionError(f"the table of {family} has no place for {', '.join(left)}")


def _own_names(network: AnyNetwork) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in network.named_parameters()}
