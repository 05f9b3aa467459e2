"""From a network to a folder that others can open.

A network that is exactly a published family's is saved in that family's layout, and opens in Hugging Face's library.
Any other is saved under our own names, and `save` says so. Rates of dropout that a family has no key for are left out:
only training looks at them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint.files import CONFIG, write_json, write_tensors
from regard.checkpoint.load import NATIVE, AnyNetwork
from regard.checkpoint.quantized_tensor import SCALE, narrowed, rounded
from regard.checkpoint.report import Origin
from regard.families.family import ConfigError, alike
from regard.families.registry import FAMILIES
from regard.families.weight_map import Place, Same, places
from regard.transformer import config
from regard.transformer.config_json import to_json


def save(
    network: AnyNetwork,
    folder: str | Path,
    *,
    origin: Origin | None = None,
    dtype: torch.dtype | None = None,
    own_names: bool = False,
    in_bytes: Collection[str] = (),
) -> str:
    """Write a network to a folder, and say in which layout: the name of a family, or "regard".

    `origin` is the one of the report that the network was loaded with: its config is written again key by key. With
    `own_names` the network is saved under our own names even if a family's layout would do. The matrices named
    `in_bytes` are rounded (`rounding.py`): a quarter of the size, and only this library reads them.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give the name of a folder")
    values = None if own_names else _published_config(network.config, origin)
    lines = _own_places(network) if values is None else _their_places(network, values)
    if values is None:
        values = {"model_type": NATIVE, "network": to_json(network.config)}
    tensors: dict[str, Tensor] = {}
    for line in lines:
        if in_bytes and all(name in in_bytes for name in line.ours):
            tensors |= _as_bytes(network, line)
        else:
            tensor = line.how.write([network.get_parameter(name).detach() for name in line.ours])
            tensors[line.theirs] = tensor.clone() if line.repeat else tensor
    if dtype is not None:
        tensors = {name: value.to(dtype) if value.is_floating_point() else value for name, value in tensors.items()}
    kind = next(value.dtype for value in tensors.values() if value.is_floating_point())
    tensors |= {name: value.to(kind).clone() for name, value in _computed(network, values).items()}
    said = [key for key in ("dtype", "torch_dtype") if key in values] or ["dtype"]
    values = {**values, **dict.fromkeys(said, str(kind).removeprefix("torch."))}
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder, tensors)
    write_json(folder / CONFIG, values)
    return str(values["model_type"])


def _as_bytes(network: AnyNetwork, line: Place) -> dict[str, Tensor]:
    """The levels of a matrix, and their scales, in the layout of the file."""
    parts = [rounded(network.get_parameter(name).detach().float()) for name in line.ours]
    scale = line.how.write([scale[:, None].expand_as(levels) for levels, scale in parts])
    return {
        line.theirs: line.how.write([levels for levels, _ in parts]).contiguous(),
        line.theirs + SCALE: narrowed(scale),
    }


def _published_config(design: config.Network, origin: Origin | None) -> dict[str, Any] | None:
    """The config in a family's own words: the original one where it still describes the network."""
    if origin is not None:
        try:
            read, _ = FAMILIES[origin.family].read(origin.theirs)
        except ConfigError:
            read = None
        if read is not None and alike(read, design):
            return dict(origin.theirs)
    for kept in (design, _without_dropout(design)):
        for family in FAMILIES.values():
            written = family.write(kept)
            if written is not None:
                return written
    return None


def _without_dropout(part: Any) -> Any:
    """A config whose rates of dropout are all 0."""
    if isinstance(part, tuple):
        return tuple(_without_dropout(item) for item in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return replace(
        part,
        **{name: 0.0 if name.endswith("dropout") else _without_dropout(value) for name, value in values.items()},
    )


def _their_places(network: AnyNetwork, values: dict[str, Any]) -> list[Place]:
    """Where a family's layout has the parameters; of several names for the same tensor only the first."""
    family = FAMILIES[values["model_type"]]
    architecture = family.architectures[values["architectures"][0]]
    entries = (*family.weights(network.config), *architecture.weights)
    parameters = dict(network.named_parameters(remove_duplicate=False))
    written: set[int] = set()
    found: list[Place] = []
    for place in places(entries, architecture.base, list(parameters)):
        ours = [parameters[name] for name in place.ours]
        if id(ours[0]) in written and not place.repeat:
            continue
        written.update(id(value) for value in ours)
        found.append(place)
    _check_all_written(network, written, family.name)
    return found


def _own_places(network: AnyNetwork) -> list[Place]:
    return [Place(name, (name,), Same()) for name, _ in network.named_parameters()]


def _computed(network: AnyNetwork, values: dict[str, Any]) -> dict[str, Tensor]:
    """Tensors that a family's files hold, though they follow from the config."""
    if values["model_type"] == NATIVE:
        return {}
    architecture = FAMILIES[values["model_type"]].architectures[values["architectures"][0]]
    return architecture.computed(network.config) if architecture.computed else {}


def _check_all_written(network: nn.Module, written: set[int], family: str) -> None:
    left = [name for name, value in network.named_parameters() if id(value) not in written]
    if left:
        raise AssertionError(f"the table of {family} has no place for {', '.join(left)}")
