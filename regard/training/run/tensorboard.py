"""The metrics of a run for TensorBoard, an extra: pip install 'regard[tensorboard]', tensorboard --logdir runs

metrics.jsonl stays the truth: whenever a run begins or goes on, its event file is written anew from it. So no point is
there twice, and none of the part of a run that was lost when it was stopped.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from regard.training.run.run_dir import Folder, read_metrics


class NotInstalledError(ValueError):
    """TensorBoard is asked for and not there."""


def writer() -> type[Any]:
    """What writes event files: torch's `SummaryWriter`. Where that cannot work, an error says what to install."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise NotInstalledError(
            f"training.tensorboard needs the package tensorboard ({error}): pip install 'regard[tensorboard]', or "
            "leave the key out; metrics.jsonl has all numbers, and `regard plot` draws them"
        ) from None
    return SummaryWriter


@contextmanager
def following(folder: Folder) -> Iterator[None]:
    """Write the metrics so far, and each line that is added while the block runs."""
    place = folder.place / "tensorboard"
    shutil.rmtree(place, ignore_errors=True)
    events = writer()(str(place))

    def added(line: Mapping[str, Any]) -> None:
        add(events, line)
        events.flush()

    for line in read_metrics(folder.metrics) if folder.metrics.exists() else ():
        add(events, line)
    folder.added = added
    try:
        yield
    finally:
        folder.added = None
        events.close()


def add(events: Any, line: Mapping[str, Any]) -> None:
    """A line of metrics: `loss` is a point of train/loss, `valid_bleu` of valid/bleu. Means of states are no points."""
    if "mean_of" in line:
        return
    beside = ("step", "epoch") if "valid_loss" in line else ("step",)
    for name, value in line.items():
        if name not in beside and math.isfinite(value):
            curve = name.replace("valid_", "valid/", 1) if name.startswith("valid_") else f"train/{name}"
            events.add_scalar(curve, value, line["step"])
