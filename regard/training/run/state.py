"""Checkpoints: the exact state of a run, enough to resume it bit for bit.

A checkpoint is a directory `checkpoints/step-00000500` with two files: `state.json` for scalars and `state.safetensors`
for tensors, without pickle. It is written under a temporary name, flushed to disk, and renamed when complete, so a
directory with its final name is always complete. `state.json` has the checksum of both, so that a checkpoint that was
damaged later is not resumed from.

No generator state is saved, because none is needed: random numbers are functions of the run's seed, the epoch and the
example (`regard/data/random_keys.py`). torch's generator, for what a step draws as a whole, is seeded for each batch.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import platform
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.checkpoint.model_folder import CheckpointError
from regard.checkpoint.tensor_files import write_safetensors
from regard.checksums import check_files, with_checksums, without_checksums
from regard.files import TEMPORARY_NAME, atomic_folder, read_json, temporary_path, write_json
from regard.native.library import status
from regard.training.recipe.legacy_keys import upgrade_state

PROGRESS_FILE, TENSORS_FILE = "state.json", "state.safetensors"
CHECKPOINT_NAME = re.compile(r"step-(\d{8})")
DAMAGED_PREFIX = "damaged-"
"""Prefix of checkpoints that are not resumed from: they are unreadable, or were saved after the loss had risen."""
DAMAGED_NAME = re.compile(DAMAGED_PREFIX + CHECKPOINT_NAME.pattern)
LEFTOVER_NAME = re.compile(TEMPORARY_NAME.format(name=f"({DAMAGED_PREFIX})?{CHECKPOINT_NAME.pattern}"))
"""What a killed process may leave."""


class RandomDraws(enum.StrEnum):
    """What the random numbers of a run depend on. A run keeps to what it began with."""

    BY_CALL = "by call"
    """The calls before, in the same batch. Runs that were started before there was a choice."""
    BY_KEY = "by key"
    """The seed, the epoch, the example, the position and the place that draws (`regard/data/random_keys.py`)."""


@dataclass(kw_only=True)
class TrainingProgress:
    """The scalars of a run, all of which are in `state.json`."""

    random_draws: RandomDraws = RandomDraws.BY_KEY
    """What the random numbers depend on."""

    step: int = 0
    """Completed optimizer steps."""
    epoch: int = 0
    batch: int = 0
    """The next batch: its epoch, and its index in the epoch."""
    loss: float = 0.0
    count: int = 0
    """Sum and count of the losses since the last line of metrics.jsonl."""
    smoothed_loss: float | None = None
    lowest_loss: float | None = None
    lowest_loss_step: int = 0
    """The smoothed loss, its minimum, and the step of the minimum, to detect divergence."""
    best_value: float | None = None
    best_step: int = 0
    """Value of `best_metric` of the best model, and its step."""
    evaluations_since_best: int = 0
    metric_by_step: dict[str, float] = field(default_factory=dict)
    """Value of `best_metric` at each evaluation."""
    seconds: float = 0.0
    """Time in the loop. Stays 0 unless the recipe sets `minutes`, so that equal runs have equal checkpoints."""
    metrics_bytes: int = 0
    """Size of metrics.jsonl in bytes."""
    finished: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint."""

    progress: TrainingProgress
    tensors: Mapping[str, Tensor]
    environment: Mapping[str, Any]


def batch_seed(seed: int, epoch: int, batch: int, purpose: str = "train") -> int:
    """Return the seed of all random numbers of one batch."""
    digest = hashlib.sha256(f"{seed} {purpose} {epoch} {batch}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def processor_model() -> str:
    """Return the model of the CPU: matrix products have other last digits on another one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else ""


def environment(device: str) -> dict[str, Any]:
    """Return what the last digits of results depend on besides the recipe: versions, processor, threads."""
    return {
        "torch": torch.__version__,
        "processor": platform.machine(),
        "processor model": processor_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "native library": status(),
        "device": device if not device.startswith("cuda") else torch.cuda.get_device_name(device),
    }


def save_checkpoint(
    folder: Path, progress: TrainingProgress, tensors: Mapping[str, Tensor], environment: Mapping[str, Any]
) -> Path:
    """Write a checkpoint into the directory of checkpoints, atomically."""
    path = folder / f"step-{progress.step:08d}"
    with atomic_folder(path) as temporary:
        write_safetensors(temporary / TENSORS_FILE, {name: value.detach() for name, value in tensors.items()})
        values = {"environment": environment, "progress": dataclasses.asdict(progress)}
        write_json(temporary / PROGRESS_FILE, with_checksums(values, [temporary / TENSORS_FILE]))
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, also one of version 0.1. Raises `CheckpointError` if it is unreadable."""
    stored = read_json(path / PROGRESS_FILE, CheckpointError)
    values = without_checksums(stored, path / PROGRESS_FILE, CheckpointError)
    check_files(path, stored, CheckpointError)
    try:
        saved_environment, values = upgrade_state(values)
        if not isinstance(saved_environment, dict):
            raise TypeError(f"environment is {saved_environment!r}")
        draws = RandomDraws(values.get("random_draws", RandomDraws.BY_CALL))  # runs of version 0.1 do not say
        progress = _read_progress({**values, "random_draws": draws})
        return Checkpoint(progress, load_file(path / TENSORS_FILE), saved_environment)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error})") from None
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{path} was written by another version of regard, or is damaged ({error})") from None


def _read_progress(values: Mapping[str, Any]) -> TrainingProgress:
    """Check the types of all values."""
    types = get_type_hints(TrainingProgress)
    for name, value in values.items():
        try:
            TypeAdapter(types.get(name, Any)).validate_python(value, strict=True)
        except ValidationError as error:
            raise ValueError(f"{name} is {value!r}: {error.errors()[0]['msg']}") from None
    return TrainingProgress(**values)


def load_last_checkpoint(folder: Path) -> tuple[Checkpoint, list[str]] | None:
    """Read the last intact checkpoint, and mark later ones as damaged. Returns it with their errors, or None if empty.

    If there are checkpoints and none can be read, nothing is renamed, since the cause may be temporary.
    """
    errors: dict[Path, str] = {}
    for path in reversed(list_checkpoints(folder).values()):
        try:
            checkpoint = load_checkpoint(path)
        except CheckpointError as error:
            errors[path] = str(error)
            continue
        mark_damaged(errors)
        return checkpoint, list(errors.values())
    if errors:
        raise CheckpointError(
            f"{'; '.join(errors.values())}. No readable checkpoint is left, and nothing was changed: restore one in "
            f"{folder}, or use --overwrite to delete the run and train again"
        )
    return None


def mark_damaged(paths: Iterable[Path]) -> None:
    """Rename checkpoints, so that no run resumes from them."""
    for path in paths:
        damaged = path.with_name(DAMAGED_PREFIX + path.name)
        remove_directory(damaged)
        path.rename(damaged)


def list_checkpoints(folder: Path) -> dict[int, Path]:
    """Return the checkpoints in a directory by step, in ascending order."""
    paths = {int(match[1]): path for path in folder.glob("step-*") if (match := CHECKPOINT_NAME.fullmatch(path.name))}
    return dict(sorted(paths.items()))


def prune_checkpoints(folder: Path, keep: Iterable[int]) -> None:
    """Remove the checkpoints that are not in `keep`, incomplete ones, and damaged ones up to the last step."""
    steps_to_keep = set(keep)
    checkpoints = list_checkpoints(folder)
    for step, path in checkpoints.items():
        if step not in steps_to_keep:
            remove_directory(path)
    last_step = f"{max(checkpoints, default=0):08d}"
    for path in folder.iterdir():
        is_old = DAMAGED_NAME.fullmatch(path.name) and path.name[-8:] <= last_step
        if is_old or LEFTOVER_NAME.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Remove a directory. It is renamed first, so that no incomplete directory ever has its name."""
    if path.exists():
        trash = temporary_path(path, "gone")
        path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)
