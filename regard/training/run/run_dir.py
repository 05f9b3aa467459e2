"""The folder of a run.

recipe.toml      the recipe, with everything that was left out filled in
metrics.jsonl    a line for every few updates, and one for every evaluation; no times in it: equal runs have equal files
log.txt          what was said, and when
checkpoints/     states that a stopped run goes on from
best/            the best network so far: a model folder, which `regard.load` opens; its run.json says which one it is
cache/           the tokenizer that the run began with, and the data as its numbers
tensorboard/     the metrics for TensorBoard, where the recipe asks for them
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from regard.checkpoint.files import CheckpointError, read_json, write_json
from regard.training.run import state

WHICH = "run.json"


class Folder:
    """The files of a run."""

    def __init__(self, place: str | Path) -> None:
        self.place = Path(place)
        self.recipe = self.place / "recipe.toml"
        self.metrics = self.place / "metrics.jsonl"
        self.log = self.place / "log.txt"
        self.states = self.place / "checkpoints"
        self.best = self.place / "best"
        self.cache = self.place / "cache"
        self.added: Callable[[Mapping[str, Any]], None] | None = None
        """Is told of each line of metrics."""

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The folder, made where it is not there, for this process alone. Whatever ends the process gives it free."""
        self.place.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.place, os.O_RDONLY)
        try:
            _lock(handle, self.place)
            yield
        finally:
            os.close(handle)

    def open(self) -> None:
        """Make what belongs into the folder, and mend what a sudden end may have left."""
        self.states.mkdir(parents=True, exist_ok=True)
        old = self.place / ".best.old"
        if old.exists() and not self.best.exists():
            old.rename(self.best)
        shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(self.place / ".best.part", ignore_errors=True)
        for half in self.place.glob(".*.part"):
            half.unlink()

    def add(self, values: Mapping[str, Any]) -> None:
        """A line of metrics."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        if self.added is not None:
            self.added(values)

    def measured(self) -> int:
        """How long metrics.jsonl is, when all of it is on the disk."""
        self.metrics.touch()
        state.flush(self.metrics)
        return self.metrics.stat().st_size

    def rewind(self, length: int) -> None:
        """Forget the metrics that came after a state."""
        self.metrics.touch()
        found = self.metrics.stat().st_size
        if found < length:
            raise ValueError(
                f"{self.metrics} has {found} bytes, and had {length} when the state was written: put it back as it "
                "was, or begin again in another folder"
            )
        os.truncate(self.metrics, length)

    def replace_best(self, write: Callable[[Path], None], which: Mapping[str, Any], value: float | None) -> None:
        """Put another network in the place of the best one, when it is written whole.

        `which` it is, and the `value` of the measure that decides, are kept beside it.
        """
        making, old = self.place / ".best.part", self.place / ".best.old"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        write(making)
        write_json(making / WHICH, {**which, "value": value})
        state.flush(making)
        shutil.rmtree(old, ignore_errors=True)
        if self.best.exists():
            self.best.rename(old)
        making.rename(self.best)
        state.flush(self.place)
        shutil.rmtree(old, ignore_errors=True)

    def which(self) -> dict[str, Any]:
        """Which network the best one is: its `step`, its `value`, and the steps it is the `mean_of` where it is a mean.

        Empty where nobody knows: best/ is not there, or nothing in it says so.
        """
        try:
            return read_json(self.best / WHICH)
        except CheckpointError:
            return {}

    def say(self, line: str) -> None:
        """A line of the log."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")


def _lock(handle: int, place: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        with suppress(PermissionError):  # as some systems say where files are on another machine
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{place} is another process's: wait for its end, or choose another --folder") from None


def read_metrics(place: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl. The last one may be half written, by a run that goes on or was killed."""
    raw = place.read_bytes().splitlines(keepends=True)
    lines = []
    for number, line in enumerate(raw, 1):
        try:
            found = json.loads(line)
        except ValueError:
            if number == len(raw) and not line.endswith(b"\n"):
                break
            found = None
        if not isinstance(found, dict) or not all(map(_is_number, [found.get("step"), *_measured(found)])):
            raise ValueError(
                f"{place}, line {number}: expected a JSON object of numbers, one of them `step`; found {line[:60]!r}"
            )
        lines.append(found)
    return lines


def _measured(line: Mapping[str, Any]) -> list[Any]:
    return [value for name, value in line.items() if name != "mean_of"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
