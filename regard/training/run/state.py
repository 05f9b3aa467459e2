"""The exact state of a run: all that decides how it goes on.

A state is a folder `checkpoints/step-00000500` with two files: `state.json` for numbers and `state.safetensors` for
tensors. There is no pickle in it. It is written under another name, flushed to the disk, and renamed when it is whole,
so whatever happens the last state that has its name is good.

No generator's state is kept, because none is needed: before every batch torch's generator is seeded by a function of
the run's seed and the batch's place (`seed_of`), so what is drawn does not depend on what was drawn before.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.checkpoint.files import CheckpointError, read_json, write_file, write_json
from regard.native.library import status

NUMBERS, TENSORS = "state.json", "state.safetensors"
NAME = re.compile(r"step-(\d{8})")
DAMAGED = "damaged-"
"""What the name of a state begins with that nothing should go on from: it could not be read, or the loss had risen."""


@dataclass(kw_only=True)
class Progress:
    """How far a run has come. Plain numbers, all of which are in `state.json`."""

    step: int = 0
    """Updates that are done."""
    epoch: int = 0
    batch: int = 0
    """The next batch: which epoch, and which of its batches."""
    loss: float = 0.0
    count: int = 0
    """Sum and count of the losses since the last line of metrics.jsonl."""
    smooth: float | None = None
    lowest: float | None = None
    lowest_step: int = 0
    """The smoothed loss, the lowest it has been, and when that was: what divergence is judged by."""
    best: float | None = None
    best_step: int = 0
    waited: int = 0
    """Evaluations since the best one."""
    scores: dict[str, float] = field(default_factory=dict)
    """What evaluations gave, by step."""
    seconds: float = 0.0
    """Time in the loop, where the recipe limits it. Nowhere else: equal runs have equal states."""
    metrics: int = 0
    """Bytes of metrics.jsonl."""
    finished: bool = False


@dataclass(frozen=True)
class State:
    """A state as it is on disk."""

    progress: Progress
    tensors: Mapping[str, Tensor]
    machine: Mapping[str, Any]


def seed_of(seed: int, epoch: int, batch: int, purpose: str = "train") -> int:
    """The seed of everything that is drawn for one batch."""
    digest = hashlib.sha256(f"{seed} {purpose} {epoch} {batch}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def machine(device: str) -> dict[str, Any]:
    """What the last digits of a result depend on, besides the run itself."""
    return {
        "torch": torch.__version__,
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "compiled parts": status(),
        "device": device if not device.startswith("cuda") else torch.cuda.get_device_name(device),
    }


def save(folder: Path, progress: Progress, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Path:
    """Write a state into the folder of states, whole or not at all."""
    place = folder / f"step-{progress.step:08d}"
    making = folder / f".{place.name}.{os.getpid()}.part"
    try:
        making.mkdir(parents=True)
        write_file(making / TENSORS, {name: value.detach() for name, value in tensors.items()})
        write_json(making / NUMBERS, {"machine": about, "progress": dataclasses.asdict(progress)})
        flush(making)
        remove(place)
        making.rename(place)
        flush(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return place


def load(place: Path) -> State:
    """Read a state. What is wrong with it is a `CheckpointError`."""
    numbers = read_json(place / NUMBERS)
    try:
        return State(Progress(**numbers["progress"]), load_file(place / TENSORS), numbers["machine"])
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{place} cannot be read ({error})") from None
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"{place} was written by another version of regard, or is damaged ({error})") from None


def last(folder: Path) -> tuple[State, list[str]] | None:
    """The last state that can be read, and what is wrong with those after it, which are put aside; None: there is none.

    Where there are states and none can be read, nothing is touched: whatever is in the way may pass.
    """
    wrong: dict[Path, str] = {}
    for path in reversed(saved(folder).values()):
        try:
            found = load(path)
        except CheckpointError as error:
            wrong[path] = str(error)
            continue
        put_aside(wrong)
        return found, list(wrong.values())
    if wrong:
        told = "; ".join(wrong.values())
        raise CheckpointError(f"{told}. No state is left to go on from: remove {folder} to begin again")
    return None


def put_aside(places: Iterable[Path]) -> None:
    """Give states another name, so that no run goes on from them."""
    for place in places:
        aside = place.with_name(DAMAGED + place.name)
        remove(aside)
        place.rename(aside)


def saved(folder: Path) -> dict[int, Path]:
    """The states in a folder, by step, the last one last."""
    found = {int(match[1]): path for path in folder.glob("step-*") if (match := NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


def prune(folder: Path, keep: Iterable[int]) -> None:
    """Remove all states but these, what was left half written, and damaged ones that the run has passed."""
    wanted = set(keep)
    there = saved(folder)
    for step, path in there.items():
        if step not in wanted:
            remove(path)
    passed = [path for path in folder.glob(f"{DAMAGED}step-*") if path.name[-8:] <= f"{max(there, default=0):08d}"]
    for path in [*folder.glob(".step-*"), *passed]:
        shutil.rmtree(path, ignore_errors=True)


def remove(place: Path) -> None:
    """Take a folder's name away first, so that nobody ever sees half of it."""
    if place.exists():
        gone = place.with_name(f".{place.name}.{os.getpid()}.gone")
        place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def flush(path: Path) -> None:
    """See to it that a file, or the list of files of a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
