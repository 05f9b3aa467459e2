"""From a folder to a network.

The network is first laid out without memory (on torch's meta device), each of its parameters is looked up in the
family's table, and each tensor is checked before it is read. Only then is anything put in place, so a folder that
does not fit leaves nothing half loaded. Weights are mapped from the file, not copied: a checkpoint is there at once,
and memory holds one copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint.files import CONFIG, CheckpointError, Stored, open_tensors, read_json
from regard.checkpoint.quantized_tensor import Rounded, as_stored, widened
from regard.checkpoint.report import Fate, Origin, Report
from regard.families.family import ConfigError, Family
from regard.families.registry import FAMILIES
from regard.families.weight_map import Place, Same, places
from regard.transformer import config, network
from regard.transformer.config import LanguageModel, TwoHeads, Weights
from regard.transformer.config_json import from_json
from regard.transformer.dual_encoder import DualEncoder
from regard.transformer.initialization import initialize
from regard.transformer.network import DecoderOnly, EncoderDecoder, EncoderOnly
from regard.transformer.two_stream import TwoStream

AnyNetwork = EncoderOnly | DecoderOnly | EncoderDecoder | TwoStream | DualEncoder
NATIVE = "regard"
"""The `model_type` of networks that are no published family's, saved under our own names."""


def load(
    folder: str | Path,
    *,
    architecture: str | None = None,
    change: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
    in_bytes: Callable[[nn.Module], Collection[str]] = lambda _: (),
) -> tuple[AnyNetwork, Report]:
    """The network in a folder, ready for use, and the report of what became of each tensor.

    The folder is one of Hugging Face's, or one that `save` wrote. `architecture` asks for another head than the config
    names (`"BertForSequenceClassification"` on a pretrained BERT), `change` for other values of config keys
    (`{"num_labels": 5}`); a head that the checkpoint lacks starts untrained, from `seed`, and the report says so. The
    weights keep their type unless `dtype` says otherwise.

    The matrices that `in_bytes` names stay bytes where the folder has bytes: levels in place of the weight, and their
    scales beside them. Such a network computes nothing before `engine.prepare` has seen it.
    """
    folder = Path(folder)
    values = _changed(_config(folder), change or {})
    with open_tensors(folder) as found:
        stored = widened(_modern_names(found, folder), str(folder))
        if values.get("model_type") == NATIVE:
            design, origin, table = _native(values, architecture, folder), None, None
            _check_layers(design, stored, folder)
            probe = _empty(design, folder)
        else:
            probe, origin, table = _published(values, architecture, stored, folder)
        plan = _plan(probe, table, stored, Report(str(folder), origin))
        return _fill(plan, stored, dtype, torch.device(device), seed, in_bytes(plan.network)), plan.report


@dataclass(frozen=True)
class Table:
    """The lines of a family's table that apply to one checkpoint."""

    family: Family
    architecture: str
    base: str


@dataclass(frozen=True)
class Plan:
    """A network without memory, and where each of its parameters is to be found."""

    network: AnyNetwork
    places: list[Place]
    report: Report


def _config(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise CheckpointError(
            f"there is no folder {folder}. Nothing is fetched unasked: `regard.load(name, download=True)` fetches a "
            "model from the Hugging Face hub"
        )
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file: give the folder that it is in")
    if not any(folder.iterdir()):
        raise CheckpointError(f"{folder} is empty: expected {CONFIG} and model.safetensors")
    return read_json(folder / CONFIG)


def _changed(values: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The config with some values changed. A new number of labels leaves the names of the old ones behind."""
    if "num_labels" in change:
        values = {key: value for key, value in values.items() if key not in ("id2label", "label2id")}
    return {**values, **change}


def _native(values: Mapping[str, Any], architecture: str | None, folder: Path) -> config.Network:
    unknown = set(values) - {"model_type", "network", "dtype", "torch_dtype"}
    if unknown:
        raise CheckpointError(f"{folder / CONFIG}: beside `network` there is no key {', '.join(sorted(unknown))}")
    if architecture is not None:
        raise CheckpointError(f"{folder}: saved under our own names, it has no architecture {architecture!r} to choose")
    try:
        design: config.Network = from_json(values.get("network"))
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from None
    return design


def _published(
    values: dict[str, Any], architecture: str | None, stored: Mapping[str, Stored], folder: Path
) -> tuple[AnyNetwork, Origin, Table]:
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise CheckpointError(f"{folder / CONFIG}: model_type is {kind!r}; known are {', '.join([*FAMILIES, NATIVE])}")
    family = FAMILIES[kind]
    try:
        design, name = family.read(values, architecture)
    except ConfigError as error:
        raise CheckpointError(f"{folder / str(error)}") from None
    _check_layers(design, stored, folder)
    table = Table(family, name, _base(family, name, stored))
    return _untied(design, table, stored, folder), Origin(family.name, name, {**values, "architectures": [name]}), table


def _check_layers(design: config.Network, stored: Mapping[str, Stored], folder: Path) -> None:
    """A config can claim any number of blocks; the tensors show how many there are."""
    towers = (design.text, design.vision) if isinstance(design, config.DualEncoder) else (design,)
    stacks = [getattr(tower, side) for tower in towers for side in ("encoder", "decoder") if hasattr(tower, side)]
    layers = sum(stack.layers for stack in stacks if isinstance(stack.sharing, config.Apart))
    if layers > len(stored):
        raise CheckpointError(
            f"{folder / CONFIG}: the config asks for {layers} blocks, but the weights are only {len(stored)} tensors"
        )


def _empty(design: config.Network, folder: Path) -> AnyNetwork:
    try:
        return network.empty(design)
    except (RuntimeError, ValueError, TypeError, IndexError, ArithmeticError, MemoryError) as error:
        raise CheckpointError(
            f"{folder / CONFIG}: no network can be made of it ({str(error).splitlines()[0]})"
        ) from None


def _base(family: Family, architecture: str, stored: Mapping[str, Stored]) -> str:
    """What stands before the names: files that were saved without a head lack it, whatever the config says."""
    bases = [family.architectures[architecture].base, *(other.base for other in family.architectures.values())]
    return next((base for base in bases if base and any(name.startswith(base) for name in stored)), "")


def _modern_names(stored: dict[str, Stored], folder: Path) -> dict[str, Stored]:
    """Files that came from TensorFlow call the weight of a norm gamma and its bias beta."""
    renamed: dict[str, Stored] = {}
    for name, value in stored.items():
        new = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        if new in renamed:
            raise CheckpointError(f"{folder}: tensors {renamed[new].name} and {name} are one and the same: remove one")
        renamed[new] = value
    return renamed


def _untied(design: config.Network, table: Table, stored: Mapping[str, Stored], folder: Path) -> AnyNetwork:
    """A last layer that is stored and differs from the token table is its own, whatever the config says."""
    probe = _empty(design, folder)
    if isinstance(design, config.DualEncoder):
        return probe
    head = design.head
    words = head.words if isinstance(head, TwoHeads) else head
    if head is None or not isinstance(words, LanguageModel) or words.weights is Weights.OWN:
        return probe
    by_ours = {place.ours[0]: place.theirs for place in _spelt_out(probe, table) if place.theirs in stored}
    last = by_ours.get("head.words.output.weight" if isinstance(head, TwoHeads) else "head.output.weight")
    side = "target" if isinstance(design, config.EncoderDecoder) else "embedding"
    first = by_ours.get(f"{side}.tokens.weight") or by_ours.get("source.tokens.weight")
    if last is None or first is None or last == first or stored[last].same(stored[first]):
        return probe
    words = replace(words, weights=Weights.OWN)
    return _empty(replace(design, head=replace(head, words=words) if isinstance(head, TwoHeads) else words), folder)


def _spelt_out(probe: nn.Module, table: Table | None) -> list[Place]:
    """Where each parameter stands, under every name that it may have."""
    names = [name for name, _ in probe.named_parameters(remove_duplicate=False)]
    if table is None:
        return [Place(name, (name,), Same()) for name in dict.fromkeys(_first_names(probe).values())]
    entries = (*table.family.weights(probe.config), *table.family.architectures[table.architecture].weights)
    return places(entries, table.base, names)


def _first_names(probe: nn.Module) -> dict[str, str]:
    """Every name of a parameter, and the first of the names of the same parameter."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(value), name) for name, value in probe.named_parameters(remove_duplicate=False)}


def _plan(probe: AnyNetwork, table: Table | None, stored: Mapping[str, Stored], report: Report) -> Plan:
    """Find a tensor for every parameter, and a reason for every tensor."""
    canonical, shapes = _first_names(probe), {name: value.shape for name, value in probe.named_parameters()}
    taken: dict[str, Place] = {}
    chosen: list[Place] = []
    for place in _spelt_out(probe, table):
        ours = tuple(canonical[name] for name in place.ours)
        if place.theirs not in stored:
            continue
        if ours[0] in taken:
            _note_repeated(place, taken[ours[0]], stored, table, report)
            continue
        taken.update(dict.fromkeys(ours, place))
        chosen.append(Place(place.theirs, ours, place.how))
        _note_shape(chosen[-1], stored[place.theirs], shapes, report)
    _note_missing([name for name in shapes if name not in taken], table, probe, report)
    _note_others(stored, table, report)
    _refuse(report)
    return Plan(probe, chosen, report)


def _note_repeated(
    place: Place, first: Place, stored: Mapping[str, Stored], table: Table | None, report: Report
) -> None:
    if place.theirs == first.theirs:
        return
    if not stored[first.theirs].same(stored[place.theirs]):
        why = table and _ignored(place.theirs, table)
        fate = Fate.IGNORED if why else Fate.MISSHAPEN
        report.add(place.theirs, place.ours, fate, why or f"it should repeat {first.theirs}, and differs")
        return
    report.add(place.theirs, place.ours, Fate.TIED, f"the same as {first.theirs}")


def _note_shape(place: Place, stored: Stored, shapes: Mapping[str, torch.Size], report: Report) -> None:
    expected = [torch.empty(shapes[name], device="meta") for name in place.ours]
    shape = tuple(place.how.write(expected).shape)
    if stored.dtype is None:
        report.add(place.theirs, place.ours, Fate.MISSHAPEN, "its numbers are not floating-point")
    elif stored.shape != shape:
        why = f"it is {_times(stored.shape)}, and the config asks for {_times(shape)}"
        report.add(place.theirs, place.ours, Fate.MISSHAPEN, why)
    else:
        report.add(place.theirs, place.ours, Fate.USED)


def _note_missing(missing: list[str], table: Table | None, probe: nn.Module, report: Report) -> None:
    """A head, or a whole layer of it, may be missing, and starts untrained; a fixed bias may be, and is zero."""
    entries = table.family.architectures[table.architecture].weights if table else ()
    own = {part for entry in entries for part in entry.parts}  # a head may bring a vector that stands elsewhere
    heads = [name for name, _ in probe.named_parameters() if name.startswith("head.") or name in own]
    fixed = {name for name, value in probe.named_parameters() if not value.requires_grad}
    trained = {name for name in heads if name not in fixed}
    for name in missing:
        if name in fixed:
            report.add(name, (name,), Fate.IGNORED, "not stored: zeros")
        elif name in trained and table is not None and _whole(name, trained) <= set(missing):
            report.add(name, (name,), Fate.MISSING, "the checkpoint has no such head")
        else:
            report.add(name, (name,), Fate.UNKNOWN, "the checkpoint lacks it")


def _whole(name: str, trained: set[str]) -> set[str]:
    """What belongs to the same layer as a parameter: half a layer is a damaged file."""
    layer = name.rpartition(".")[0]
    return {other for other in trained if other.startswith(f"{layer}.")}


def _note_others(stored: Mapping[str, Stored], table: Table | None, report: Report) -> None:
    told = {line.theirs for line in report.lines}
    for name in stored:
        if name not in told:
            why = table and _reason(name, table)
            report.add(name, (), Fate.IGNORED if why else Fate.UNKNOWN, why or "not a part of this network")


def _reason(name: str, table: Table) -> str | None:
    """Why a tensor may be passed over: the family says so, or it belongs to another head of the family."""
    if why := _ignored(name, table):
        return why
    for other, architecture in table.family.architectures.items():
        for entry in architecture.weights:
            ending = "" if entry.exact else r"\.(weight|bias)"
            if other != table.architecture and re.fullmatch(_pattern(entry.theirs, table.base) + ending, name):
                return f"part of {other}, not of {table.architecture}"
    return None


def _ignored(name: str, table: Table) -> str | None:
    for pattern, why in table.family.ignored_weights.items():
        if re.fullmatch(_pattern(pattern, table.base), name):
            return why
    return None


def _pattern(theirs: str, base: str) -> str:
    return re.escape(theirs).replace("@", re.escape(base)).replace(r"\#", r"\d+")


def _refuse(report: Report) -> None:
    wrong = report.having(Fate.UNKNOWN, Fate.MISSHAPEN)
    if not wrong:
        return
    told = "\n".join(f"  {line.theirs}: {line.why}" for line in wrong[:12])
    more = f"\n  and {len(wrong) - 12} more" if len(wrong) > 12 else ""
    raise CheckpointError(
        f"{report.folder}: the weights do not fit the config ({len(wrong)} tensors):\n{told}{more}\n"
        "Check that config.json and the weights belong together, and that the files are whole."
    )


def _fill(
    plan: Plan,
    stored: Mapping[str, Stored],
    dtype: torch.dtype | None,
    device: torch.device,
    seed: int,
    in_bytes: Collection[str],
) -> AnyNetwork:
    """Put every tensor in its place."""
    used = {stored[place.theirs].dtype for place in plan.places}
    target = dtype or _widest(used, plan.report)
    taken: set[int] = set()
    for place in plan.places:
        tensor = stored[place.theirs]
        levels = as_stored(place, tensor) if all(name in in_bytes for name in place.ours) else None
        parts: Sequence[Tensor | Rounded] = levels or place.how.read(tensor.read(), len(place.ours))
        for name, part in zip(place.ours, parts, strict=True):
            if isinstance(part, Rounded):
                _set_levels(plan.network, name, part)
                continue
            value = part.to(device, target)
            # An old file may hold one piece of memory under two names; two parameters must not share it.
            _set(plan.network, name, value.clone() if value.data_ptr() in taken else value)
            taken.add(value.data_ptr())
    absent = [name for name, value in plan.network.named_parameters() if value.is_meta]
    for name in absent:
        _set(plan.network, name, torch.zeros(plan.network.get_parameter(name).shape, dtype=target, device=device))
    new = set(plan.report.new)
    if new:
        initialize(plan.network, plan.network.config, seed, only=new)
    return plan.network.eval()


def _widest(dtypes: Iterable[torch.dtype | None], report: Report) -> torch.dtype:
    known = sorted(
        {dtype for dtype in dtypes if dtype is not None}, key=lambda dtype: (torch.finfo(dtype).bits, str(dtype))
    )
    if not known:
        return torch.float32
    widest = torch.float32 if known == [torch.bfloat16, torch.float16] else known[-1]
    if len(known) > 1:
        report.notes.append(f"the weights are of several types ({', '.join(map(str, known))}): all made {widest}")
    return widest


def _set(root: nn.Module, name: str, value: Tensor) -> None:
    module, _, last = name.rpartition(".")
    owner = root.get_submodule(module)
    owner.register_parameter(last, nn.Parameter(value, requires_grad=owner.get_parameter(last).requires_grad))


def _set_levels(root: nn.Module, name: str, value: Rounded) -> None:
    module, _, last = name.rpartition(".")
    owner = root.get_submodule(module)
    owner.register_parameter(last, nn.Parameter(value.levels, requires_grad=False))
    owner.register_buffer("scale", value.scale, persistent=False)


def _times(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "a single number"
