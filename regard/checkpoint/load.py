"""Loads a checkpoint into a network.

The network is first created on the meta device, without memory. Each of its parameters is looked up in the family's
weight map, and every tensor is checked before any is read, so a checkpoint that does not match leaves nothing half
loaded. Weights are memory-mapped, not copied: loading is immediate, and memory holds one copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint.model_folder import CONFIG_FILE, REGARD_MODEL_TYPE, CheckpointError, ModelFolder
from regard.checkpoint.quantized_tensor import QuantizedTensor, dequantize_tensors, split_quantized
from regard.checkpoint.report import LoadReport, LoadStatus, Origin
from regard.checkpoint.tensor_files import LazyTensor
from regard.families.family import ConfigError, Family
from regard.families.registry import FAMILIES
from regard.families.weight_map import Identity, TensorMapping, resolve_entries
from regard.transformer import config, network
from regard.transformer.config import LanguageModel, TwoHeads, Weights
from regard.transformer.config_json import from_json
from regard.transformer.dual_encoder import DualEncoder
from regard.transformer.initialization import initialize
from regard.transformer.network import DecoderOnly, EncoderDecoder, EncoderOnly
from regard.transformer.two_stream import TwoStream

AnyNetwork = EncoderOnly | DecoderOnly | EncoderDecoder | TwoStream | DualEncoder


def load(
    folder: str | Path,
    *,
    architecture: str | None = None,
    config_overrides: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
    keep_int8: Callable[[nn.Module], Collection[str]] = lambda _: (),
) -> tuple[AnyNetwork, LoadReport]:
    """Load the network in a folder, in eval mode; return it with a report on every tensor.

    The folder is in the Hugging Face layout or was written by `save`. `architecture` selects another head than the one
    in the config (`"BertForSequenceClassification"` on a pretrained BERT). `config_overrides` replaces values of config
    keys (`{"num_labels": 5}`). A head without weights in the checkpoint is newly initialized from `seed` and listed in
    the report. The weights keep their dtype unless `dtype` is given.

    `keep_int8` returns the names of weights that stay int8 if the folder has them in int8: the quantized values replace
    the weight, and the module gets a buffer `scale`. Such a network must go through `engine.compile` before use.
    """
    files = ModelFolder(folder)
    folder = files.path
    values = _override_config(files.config, config_overrides or {})
    _ = files.info  # a folder of a newer version is refused before anything is loaded
    with files.tensors() as tensors:
        stored = dequantize_tensors(_rename_gamma_beta(tensors, folder), str(folder))
        if values.get("model_type") == REGARD_MODEL_TYPE:
            design, origin, layout = _regard_config(values, architecture, folder), None, None
            _check_layers(design, stored, folder)
            probe = _meta_network(design, folder)
        else:
            probe, origin, layout = _family_network(values, architecture, stored, folder)
        plan = _make_plan(probe, layout, stored, LoadReport(str(folder), origin))
        return _fill_parameters(plan, stored, dtype, torch.device(device), seed, keep_int8(plan.network)), plan.report


@dataclass(frozen=True)
class CheckpointLayout:
    """The published layout of one checkpoint: the family, the class and the prefix of the names."""

    family: Family
    architecture: str
    prefix: str


@dataclass(frozen=True)
class LoadPlan:
    """A network on the meta device, with the tensor of the checkpoint for each of its parameters."""

    network: AnyNetwork
    mappings: list[TensorMapping]
    report: LoadReport


def _override_config(values: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values of the config. A new `num_labels` also removes the old label names."""
    if "num_labels" in overrides:
        values = {key: value for key, value in values.items() if key not in ("id2label", "label2id")}
    return {**values, **overrides}


def _regard_config(values: Mapping[str, Any], architecture: str | None, folder: Path) -> config.Network:
    unknown = set(values) - {"model_type", "network", "dtype", "torch_dtype"}
    if unknown:
        raise CheckpointError(
            f"{folder / CONFIG_FILE}: unknown key {', '.join(sorted(unknown))}: only `network` and `dtype` are allowed"
        )
    if architecture is not None:
        raise CheckpointError(
            f"{folder}: a checkpoint in regard's own layout has no architectures to choose from, found {architecture!r}"
        )
    try:
        design: config.Network = from_json(values.get("network"))
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG_FILE}: {error}") from None
    return design


def _family_network(
    values: dict[str, Any], architecture: str | None, stored: Mapping[str, LazyTensor], folder: Path
) -> tuple[AnyNetwork, Origin, CheckpointLayout]:
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise CheckpointError(
            f"{folder / CONFIG_FILE}: unknown model_type {model_type!r}: expected one of "
            f"{', '.join([*FAMILIES, REGARD_MODEL_TYPE])}"
        )
    family = FAMILIES[model_type]
    try:
        design, name = family.read_config(values, architecture)
    except ConfigError as error:
        raise CheckpointError(f"{folder / str(error)}") from None
    _check_layers(design, stored, folder)
    layout = CheckpointLayout(family, name, _key_prefix(family, name, stored))
    return (
        _untie_output(design, layout, stored, folder),
        Origin(family.name, name, {**values, "architectures": [name]}),
        layout,
    )


def _check_layers(design: config.Network, stored: Mapping[str, LazyTensor], folder: Path) -> None:
    """Raise if the config has more blocks than the checkpoint has tensors, before any block is created."""
    networks = (design.text, design.vision) if isinstance(design, config.DualEncoder) else (design,)
    stacks = [getattr(part, side) for part in networks for side in ("encoder", "decoder") if hasattr(part, side)]
    layers = sum(stack.layers for stack in stacks if isinstance(stack.sharing, config.Apart))
    if layers > len(stored):
        raise CheckpointError(
            f"{folder / CONFIG_FILE}: the config has {layers} blocks, but there are only {len(stored)} tensors"
        )


def _meta_network(design: config.Network, folder: Path) -> AnyNetwork:
    try:
        return network.build_on_meta(design)
    except (RuntimeError, ValueError, TypeError, IndexError, ArithmeticError, MemoryError) as error:
        raise CheckpointError(
            f"{folder / CONFIG_FILE}: cannot build a network from this config ({str(error).splitlines()[0]})"
        ) from None


def _key_prefix(family: Family, architecture: str, stored: Mapping[str, LazyTensor]) -> str:
    """Find the prefix of the tensor names: files saved without a head lack it, regardless of the config."""
    prefixes = [family.architectures[architecture].prefix, *(other.prefix for other in family.architectures.values())]
    return next((prefix for prefix in prefixes if prefix and any(name.startswith(prefix) for name in stored)), "")


def _rename_gamma_beta(stored: dict[str, LazyTensor], folder: Path) -> dict[str, LazyTensor]:
    """Rename norms: files converted from TensorFlow call the weight gamma and the bias beta."""
    renamed: dict[str, LazyTensor] = {}
    for name, value in stored.items():
        new = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        if new in renamed:
            raise CheckpointError(
                f"{folder}: tensors {renamed[new].name} and {name} have the same name after renaming gamma and beta: "
                "remove one"
            )
        renamed[new] = value
    return renamed


def _untie_output(
    design: config.Network, layout: CheckpointLayout, stored: Mapping[str, LazyTensor], folder: Path
) -> AnyNetwork:
    """Untie the output projection if it is stored and differs from the token embedding, regardless of the config."""
    probe = _meta_network(design, folder)
    if isinstance(design, config.DualEncoder):
        return probe
    head = design.head
    language_model = head.words if isinstance(head, TwoHeads) else head
    if head is None or not isinstance(language_model, LanguageModel) or language_model.weights is Weights.OWN:
        return probe
    names = {mapping.ours[0]: mapping.theirs for mapping in _expand_entries(probe, layout) if mapping.theirs in stored}
    output = names.get("head.words.output.weight" if isinstance(head, TwoHeads) else "head.output.weight")
    side = "target" if isinstance(design, config.EncoderDecoder) else "embedding"
    tokens = names.get(f"{side}.tokens.weight") or names.get("source.tokens.weight")
    if output is None or tokens is None or output == tokens or stored[output].equals(stored[tokens]):
        return probe
    untied = replace(language_model, weights=Weights.OWN)
    return _meta_network(
        replace(design, head=replace(head, words=untied) if isinstance(head, TwoHeads) else untied), folder
    )


def _expand_entries(probe: nn.Module, layout: CheckpointLayout | None) -> list[TensorMapping]:
    """Return the mappings of all parameters, under every name that a parameter may have in the checkpoint."""
    names = [name for name, _ in probe.named_parameters(remove_duplicate=False)]
    if layout is None:
        return [TensorMapping(name, (name,), Identity()) for name in dict.fromkeys(_canonical_names(probe).values())]
    entries = (*layout.family.weights(probe.config), *layout.family.architectures[layout.architecture].weights)
    return resolve_entries(entries, layout.prefix, names)


def _canonical_names(probe: nn.Module) -> dict[str, str]:
    """Map every name of a parameter to the first name of the same parameter (tied parameters have several)."""
    first_names: dict[int, str] = {}
    return {
        name: first_names.setdefault(id(value), name) for name, value in probe.named_parameters(remove_duplicate=False)
    }


def _make_plan(
    probe: AnyNetwork, layout: CheckpointLayout | None, stored: Mapping[str, LazyTensor], report: LoadReport
) -> LoadPlan:
    """Find a tensor for every parameter, and report a status for every tensor."""
    canonical, shapes = _canonical_names(probe), {name: value.shape for name, value in probe.named_parameters()}
    assigned: dict[str, TensorMapping] = {}
    chosen: list[TensorMapping] = []
    for mapping in _expand_entries(probe, layout):
        ours = tuple(canonical[name] for name in mapping.ours)
        if mapping.theirs not in stored:
            continue
        if ours[0] in assigned:
            _report_tied(mapping, assigned[ours[0]], stored, layout, report)
            continue
        assigned.update(dict.fromkeys(ours, mapping))
        chosen.append(TensorMapping(mapping.theirs, ours, mapping.how))
        _report_shape(chosen[-1], stored[mapping.theirs], shapes, report)
    _report_missing([name for name in shapes if name not in assigned], layout, probe, report)
    _report_unused(stored, layout, report)
    _raise_on_mismatch(report)
    return LoadPlan(probe, chosen, report)


def _report_tied(
    mapping: TensorMapping,
    first: TensorMapping,
    stored: Mapping[str, LazyTensor],
    layout: CheckpointLayout | None,
    report: LoadReport,
) -> None:
    if mapping.theirs == first.theirs:
        return
    if not stored[first.theirs].equals(stored[mapping.theirs]):
        reason = layout and _family_ignore_reason(mapping.theirs, layout)
        status = LoadStatus.IGNORED if reason else LoadStatus.MISMATCHED
        report.add(mapping.theirs, mapping.ours, status, reason or f"should equal {first.theirs} (tied), but differs")
        return
    report.add(mapping.theirs, mapping.ours, LoadStatus.TIED, f"tied to {first.theirs}")


def _report_shape(
    mapping: TensorMapping, stored: LazyTensor, shapes: Mapping[str, torch.Size], report: LoadReport
) -> None:
    expected = [torch.empty(shapes[name], device="meta") for name in mapping.ours]
    shape = tuple(mapping.how.write(expected).shape)
    if stored.dtype is None:
        report.add(mapping.theirs, mapping.ours, LoadStatus.MISMATCHED, "not a floating-point tensor")
    elif stored.shape != shape:
        reason = f"shape {_format_shape(stored.shape)}, expected {_format_shape(shape)}"
        report.add(mapping.theirs, mapping.ours, LoadStatus.MISMATCHED, reason)
    else:
        report.add(mapping.theirs, mapping.ours, LoadStatus.LOADED)


def _report_missing(missing: list[str], layout: CheckpointLayout | None, probe: nn.Module, report: LoadReport) -> None:
    """Report missing parameters. Complete layers of a head are newly initialized, and a fixed bias is zero."""
    entries = layout.family.architectures[layout.architecture].weights if layout else ()
    # The weight map of a head may include a vector outside of it (ViT's mask vector).
    head_entries = {part for entry in entries for part in entry.parts}
    heads = [name for name, _ in probe.named_parameters() if name.startswith("head.") or name in head_entries]
    fixed = {name for name, value in probe.named_parameters() if not value.requires_grad}
    trainable = {name for name in heads if name not in fixed}
    for name in missing:
        if name in fixed:
            report.add(name, (name,), LoadStatus.IGNORED, "not in the checkpoint: zeros")
        elif name in trainable and layout is not None and _layer_parameters(name, trainable) <= set(missing):
            report.add(name, (name,), LoadStatus.MISSING, "head not in the checkpoint")
        else:
            report.add(name, (name,), LoadStatus.INCOMPLETE, "missing from the checkpoint")


def _layer_parameters(name: str, trainable: set[str]) -> set[str]:
    """Return the parameters of the same layer: a file with only a part of a layer is corrupt."""
    layer = name.rpartition(".")[0]
    return {other for other in trainable if other.startswith(f"{layer}.")}


def _report_unused(stored: Mapping[str, LazyTensor], layout: CheckpointLayout | None, report: LoadReport) -> None:
    reported = {line.theirs for line in report.lines}
    for name in stored:
        if name not in reported:
            reason = layout and _ignore_reason(name, layout)
            status = LoadStatus.IGNORED if reason else LoadStatus.UNEXPECTED
            report.add(name, (), status, reason or "not used by this network")


def _ignore_reason(name: str, layout: CheckpointLayout) -> str | None:
    """Return why a tensor may be ignored: the family lists it, or it belongs to another head of the family."""
    if reason := _family_ignore_reason(name, layout):
        return reason
    for other, architecture in layout.family.architectures.items():
        for entry in architecture.weights:
            ending = "" if entry.exact else r"\.(weight|bias)"
            if other != layout.architecture and re.fullmatch(_key_regex(entry.theirs, layout.prefix) + ending, name):
                return f"belongs to {other}, not to {layout.architecture}"
    return None


def _family_ignore_reason(name: str, layout: CheckpointLayout) -> str | None:
    for pattern, reason in layout.family.ignored_weights.items():
        if re.fullmatch(_key_regex(pattern, layout.prefix), name):
            return reason
    return None


def _key_regex(theirs: str, prefix: str) -> str:
    return re.escape(theirs).replace("@", re.escape(prefix)).replace(r"\#", r"\d+")


def _raise_on_mismatch(report: LoadReport) -> None:
    errors = report.with_status(LoadStatus.UNEXPECTED, LoadStatus.MISMATCHED, LoadStatus.INCOMPLETE)
    if not errors:
        return
    details = "\n".join(f"  {line.theirs}: {line.reason}" for line in errors[:12])
    more = f"\n  and {len(errors) - 12} more" if len(errors) > 12 else ""
    raise CheckpointError(
        f"{report.folder}: the weights do not match the config ({len(errors)} tensors):\n{details}{more}\n"
        "Check that config.json and the weights belong to the same model, and that the files are complete."
    )


def _fill_parameters(
    plan: LoadPlan,
    stored: Mapping[str, LazyTensor],
    dtype: torch.dtype | None,
    device: torch.device,
    seed: int,
    keep_int8: Collection[str],
) -> AnyNetwork:
    """Assign every tensor to its parameters and initialize the missing ones."""
    dtypes = {stored[mapping.theirs].dtype for mapping in plan.mappings}
    plan.report.dtype = _widest_dtype(dtypes, plan.report)
    target = dtype or plan.report.dtype
    assigned: set[int] = set()
    for mapping in plan.mappings:
        tensor = stored[mapping.theirs]
        quantized = split_quantized(mapping, tensor) if all(name in keep_int8 for name in mapping.ours) else None
        parts: Sequence[Tensor | QuantizedTensor] = quantized or mapping.how.read(tensor.read(), len(mapping.ours))
        for name, part in zip(mapping.ours, parts, strict=True):
            if isinstance(part, QuantizedTensor):
                _set_quantized(plan.network, name, part)
                continue
            value = part.to(device, target)
            # A pickle may hold one storage under two names; two parameters must not share it.
            _set_parameter(plan.network, name, value.clone() if value.data_ptr() in assigned else value)
            assigned.add(value.data_ptr())
    missing = [name for name, value in plan.network.named_parameters() if value.is_meta]
    for name in missing:
        _set_parameter(
            plan.network, name, torch.zeros(plan.network.get_parameter(name).shape, dtype=target, device=device)
        )
    untrained = set(plan.report.newly_initialized)
    if untrained:
        initialize(plan.network, plan.network.config, seed, only=untrained)
    return plan.network.eval()


def _widest_dtype(dtypes: Iterable[torch.dtype | None], report: LoadReport) -> torch.dtype:
    stored_dtypes = sorted(
        {dtype for dtype in dtypes if dtype is not None}, key=lambda dtype: (torch.finfo(dtype).bits, str(dtype))
    )
    if not stored_dtypes:
        return torch.float32
    widest = torch.float32 if stored_dtypes == [torch.bfloat16, torch.float16] else stored_dtypes[-1]
    if len(stored_dtypes) > 1:
        report.notes.append(f"mixed dtypes ({', '.join(map(str, stored_dtypes))}): converted to {widest}")
    return widest


def _set_parameter(root: nn.Module, name: str, value: Tensor) -> None:
    module, _, last = name.rpartition(".")
    owner = root.get_submodule(module)
    owner.register_parameter(last, nn.Parameter(value, requires_grad=owner.get_parameter(last).requires_grad))


def _set_quantized(root: nn.Module, name: str, value: QuantizedTensor) -> None:
    module, _, last = name.rpartition(".")
    owner = root.get_submodule(module)
    owner.register_parameter(last, nn.Parameter(value.qweight, requires_grad=False))
    owner.register_buffer("scale", value.scale, persistent=False)


def _format_shape(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"
