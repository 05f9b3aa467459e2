"""Saves a network as a checkpoint.

A network with the architecture of a published family is saved in that family's layout, which Hugging Face transformers
can load. Any other network is saved in regard's own layout; `save` returns which one it wrote. Dropout rates for which
a family has no key are not saved: they affect only training.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint.load import AnyNetwork
from regard.checkpoint.model_folder import CONFIG_FILE, REGARD_MODEL_TYPE, Companions, ModelFolder
from regard.checkpoint.quantized_tensor import SCALE_SUFFIX, collapse_scale, quantize
from regard.checkpoint.report import Origin
from regard.families.family import ConfigError, same_architecture
from regard.families.registry import FAMILIES
from regard.families.weight_map import Identity, TensorMapping, resolve_entries
from regard.files import read_json
from regard.transformer import config
from regard.transformer.config_json import to_json


def save(
    network: AnyNetwork,
    folder: str | Path,
    *,
    origin: Origin | None = None,
    dtype: torch.dtype | None = None,
    regard_layout: bool = False,
    int8_weights: Collection[str] = (),
    companions: Companions | None = None,
    overwrite: bool = True,
) -> str:
    """Write a network to a folder and return the layout: the name of a family, or "regard".

    `origin` is that of the report from loading the network: its config is written again key by key. With
    `regard_layout` the network is saved in regard's own layout even if it belongs to a family. The weights in
    `int8_weights` are quantized (`quantized_tensor.py`): a quarter of the size, and only this library can load them.
    Without `overwrite`, a folder that holds anything but a model of the same config raises a FileExistsError.
    `companions` are written too: tokenizer, generation config, regard.json; without them, those in the folder stay.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: pass a folder")
    values = None if regard_layout else _family_config(network.config, origin)
    mappings = _regard_mappings(network) if values is None else _family_mappings(network, values)
    if values is None:
        values = {"model_type": REGARD_MODEL_TYPE, "network": to_json(network.config)}
    if not overwrite:
        _check_folder(folder, values)
    tensors: dict[str, Tensor] = {}
    for mapping in mappings:
        if int8_weights and all(name in int8_weights for name in mapping.ours):
            tensors |= _quantized_tensors(network, mapping)
        else:
            tensor = mapping.how.write([network.get_parameter(name).detach() for name in mapping.ours])
            tensors[mapping.theirs] = tensor.clone() if mapping.repeat else tensor
    if dtype is not None:
        tensors = {name: value.to(dtype) if value.is_floating_point() else value for name, value in tensors.items()}
    saved_dtype = next(value.dtype for value in tensors.values() if value.is_floating_point())
    tensors |= {name: value.to(saved_dtype).clone() for name, value in _family_buffers(network, values).items()}
    dtype_keys = [key for key in ("dtype", "torch_dtype") if key in values] or ["dtype"]
    values = {**values, **dict.fromkeys(dtype_keys, str(saved_dtype).removeprefix("torch."))}
    ModelFolder(folder).write(values, tensors, companions)
    return str(values["model_type"])


def _check_folder(folder: Path, values: dict[str, Any]) -> None:
    """Raise a FileExistsError if a folder holds another model, or files that are no model."""

    def architecture(config: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in config.items() if key not in ("dtype", "torch_dtype")}

    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        found = read_json(folder / CONFIG_FILE)
    except ValueError:
        found = None
    if found is None or architecture(found) != architecture(values):
        content = "other files" if found is None else "another model"
        raise FileExistsError(f"{folder} holds {content}: choose another folder, or pass overwrite=True")


def _quantized_tensors(network: AnyNetwork, mapping: TensorMapping) -> dict[str, Tensor]:
    """Return the quantized values of a weight and their scale, in the layout of the file."""
    parts = [quantize(network.get_parameter(name).detach().float()) for name in mapping.ours]
    scale = mapping.how.write([scale[:, None].expand_as(qweight) for qweight, scale in parts])
    return {
        mapping.theirs: mapping.how.write([qweight for qweight, _ in parts]).contiguous(),
        mapping.theirs + SCALE_SUFFIX: collapse_scale(scale),
    }


def _family_config(design: config.Network, origin: Origin | None) -> dict[str, Any] | None:
    """Return the config in a family's format: the original one if it still describes the network."""
    if origin is not None:
        try:
            original, _ = FAMILIES[origin.family].read_config(origin.config)
        except ConfigError:
            original = None
        if original is not None and same_architecture(original, design):
            return dict(origin.config)
    for candidate in (design, _without_dropout(design)):
        for family in FAMILIES.values():
            values = family.write_config(candidate)
            if values is not None:
                return values
    return None


def _without_dropout(part: Any) -> Any:
    """Return a copy of a config with all dropout rates set to 0."""
    if isinstance(part, tuple):
        return tuple(_without_dropout(item) for item in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return replace(
        part,
        **{name: 0.0 if name.endswith("dropout") else _without_dropout(value) for name, value in values.items()},
    )


def _family_mappings(network: AnyNetwork, values: dict[str, Any]) -> list[TensorMapping]:
    """Return the mappings of a family's layout; of several names for the same tensor only the first."""
    family = FAMILIES[values["model_type"]]
    architecture = family.architectures[values["architectures"][0]]
    entries = (*family.weights(network.config), *architecture.weights)
    parameters = dict(network.named_parameters(remove_duplicate=False))
    saved_ids: set[int] = set()
    mappings: list[TensorMapping] = []
    for mapping in resolve_entries(entries, architecture.prefix, list(parameters)):
        ours = [parameters[name] for name in mapping.ours]
        if id(ours[0]) in saved_ids and not mapping.repeat:
            continue
        saved_ids.update(id(value) for value in ours)
        mappings.append(mapping)
    _check_all_saved(network, saved_ids, family.name)
    return mappings


def _regard_mappings(network: AnyNetwork) -> list[TensorMapping]:
    return [TensorMapping(name, (name,), Identity()) for name, _ in network.named_parameters()]


def _family_buffers(network: AnyNetwork, values: dict[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a family's files that are computed from the config (sinusoidal tables)."""
    if values["model_type"] == REGARD_MODEL_TYPE:
        return {}
    architecture = FAMILIES[values["model_type"]].architectures[values["architectures"][0]]
    return architecture.buffers(network.config) if architecture.buffers else {}


def _check_all_saved(network: nn.Module, saved_ids: set[int], family: str) -> None:
    missing = [name for name, value in network.named_parameters() if id(value) not in saved_ids]
    if missing:
        raise AssertionError(f"the weight map of {family} has no entry for {', '.join(missing)}")
