"""The run directory.

recipe.toml      the recipe, with all defaults filled in
overrides.json   the values that differ from the recipe's file, if there are any: a resumed run has them too
metrics.jsonl    training metrics at intervals, and each evaluation; without times, so equal runs have equal files
log.txt          all log messages, with the time
checkpoints/     checkpoints to resume from
best/            the best model so far: a model folder for `regard.load`, with its step and metric in run.json
cache/           the tokenizer of the run, and the encoded data
tensorboard/     the metrics for TensorBoard, if the recipe enables it

A run never writes into a directory that holds one of these names without a checkpoint: they are files of the person,
or what is left of a run whose checkpoints were deleted.
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

from regard.files import atomic_folder, find_leftovers, read_bytes, read_json, repair_folder, sync, write_json
from regard.training.recipe.legacy_keys import upgrade_metrics
from regard.training.run import state

BEST_INFO = "run.json"
STARTED_FILE = ".no-checkpoint-yet"
"""In `checkpoints/` until the first checkpoint is complete: a run that was killed before it may start again."""


class RunDirError(ValueError):
    """The directory holds files that this run would overwrite. The message names them and what to do."""

    exit_code = 2


class RunDir:
    """The files of a run directory."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.recipe = self.path / "recipe.toml"
        self.overrides = self.path / "overrides.json"
        self.metrics = self.path / "metrics.jsonl"
        self.log_file = self.path / "log.txt"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"
        self.cache = self.path / "cache"
        self.tensorboard = self.path / "tensorboard"
        self.on_metrics: Callable[[Mapping[str, Any]], None] | None = None
        """Called with each line of metrics."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Create the directory and lock it inside the block. The lock ends with the process, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl
        except ImportError:  # Windows has no flock, and cannot open directories
            yield
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            with suppress(PermissionError):  # some network file systems do not support locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise ValueError(
                f"{self.path} is locked by another process: wait for it, or choose another --output"
            ) from None
        try:
            yield
        finally:
            os.close(handle)

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Raise `RunDirError` if this run would overwrite anything but its own files. Changes nothing."""
        resolved = os.path.realpath(self.path)
        if resolved in (Path(resolved).anchor, os.path.realpath(os.environ.get("HOME", "/"))):
            raise RunDirError(f"{self.path} is not a directory for a run: choose a new --output, such as runs/first")
        if overwrite:
            return
        if steps := list(state.list_checkpoints(self.checkpoints)):
            if not resume:
                raise RunDirError(
                    f"{self.path} already contains a run (checkpoint of step {steps[-1]}); nothing was changed. Use "
                    "--resume to continue it, --overwrite to delete it and train again, or choose another --output"
                )
        elif self._started_file.exists():  # all files here are those of a run that kept nothing yet
            if not resume and (self.recipe.exists() or self.best.exists()):
                raise RunDirError(
                    f"{self.path} contains a run that ended before its first checkpoint; nothing was changed. Use "
                    "--resume to continue it, --overwrite to delete it, or choose another --output"
                )
        elif names := self._existing_names():
            raise RunDirError(
                f"{self.path} holds {', '.join(names)} but no checkpoint of a run; nothing was changed. Choose another "
                "--output; or restore checkpoints/ and use --resume; or use --overwrite, which deletes these files"
            )

    def _existing_names(self) -> list[str]:
        """Return the names of a run that exist here. Empty directories do not count."""
        files = [
            path.name for path in (self.recipe, self.overrides, self.metrics, self.log_file) if os.path.lexists(path)
        ]
        folders = (
            self.best,
            self.checkpoints,
            self.tensorboard,
        )  # a cache is found by its keys, and nothing else in it is changed
        return files + [
            f"{path.name}/" for path in folders if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir()))
        ]

    @property
    def _started_file(self) -> Path:
        return self.checkpoints / STARTED_FILE

    def open(self) -> None:
        """Create the subdirectories, and repair what a killed process may have left."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        if not state.list_checkpoints(self.checkpoints):
            self._started_file.touch()
        repair_folder(self.best)
        for incomplete in find_leftovers(self.recipe):
            incomplete.unlink()

    def mark_saved(self) -> None:
        """Record that the run has a checkpoint."""
        self._started_file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete the files of an earlier run, except for log.txt and the cache, which checks itself what it may use."""
        self._started_file.touch()
        for checkpoint in state.list_checkpoints(self.checkpoints).values():
            state.remove_directory(checkpoint)
        state.prune_checkpoints(self.checkpoints, ())
        self.overrides.unlink(missing_ok=True)
        for folder in (self.best, self.tensorboard):
            shutil.rmtree(folder, ignore_errors=True)
        self.truncate_metrics(0)

    def read_overrides(self) -> dict[str, Any]:
        """Return the values that differ from the recipe's file, by dotted key."""
        return read_json(self.overrides) if self.overrides.exists() else {}

    def write_overrides(self, values: Mapping[str, Any]) -> None:
        """Record the values that differ from the recipe's file."""
        if values:
            write_json(self.overrides, values)

    def append_metrics(self, values: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        if self.on_metrics is not None:
            self.on_metrics(values)

    def metrics_size(self) -> int:
        """Flush metrics.jsonl to disk, and return its size in bytes."""
        self.metrics.touch()
        sync(self.metrics)
        return self.metrics.stat().st_size

    def truncate_metrics(self, size: int) -> None:
        """Remove the metrics after a checkpoint."""
        self.metrics.touch()
        current_size = self.metrics.stat().st_size
        if current_size < size:
            raise ValueError(
                f"{self.metrics} has {current_size} bytes, but had {size} when the checkpoint was saved: restore the "
                "file, or start a new run in another directory"
            )
        os.truncate(self.metrics, size)

    def replace_best(self, save_model: Callable[[Path], None], info: Mapping[str, Any], value: float | None) -> None:
        """Replace the best model, once the new one is completely written.

        `info` (its step) and `value` (of the best metric) are saved in its run.json.
        """
        with atomic_folder(self.best) as temporary:
            save_model(temporary)
            write_json(temporary / BEST_INFO, {**info, "value": value})

    def best_info(self) -> dict[str, Any]:
        """Return the `step` and `value` of the best model, and the `averaged_steps` of an averaged one.

        Empty if best/ or its run.json is missing or unreadable.
        """
        try:
            return upgrade_metrics(read_json(self.best / BEST_INFO))
        except ValueError:
            return {}

    def log(self, line: str) -> None:
        """Append a line to log.txt."""
        with self.log_file.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a metrics.jsonl, also one of version 0.1. The last line may be incomplete in a running or killed run."""
    lines = read_bytes(path).splitlines(keepends=True)
    result = []
    for number, line in enumerate(lines, 1):
        try:
            metrics = json.loads(line)
        except ValueError:
            if number == len(lines) and not line.endswith(b"\n"):
                break
            metrics = None
        if isinstance(metrics, dict):
            metrics = upgrade_metrics(metrics)
        if not isinstance(metrics, dict) or not all(map(_is_number, [metrics.get("step"), *_metric_values(metrics)])):
            raise ValueError(
                f"{path}, line {number}: expected a JSON object of numbers, one of them `step`; found {line[:60]!r}"
            )
        result.append(metrics)
    return result


def _metric_values(metrics: Mapping[str, Any]) -> list[Any]:
    return [value for name, value in metrics.items() if name != "averaged_steps"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
