"""The metrics of a run for TensorBoard, an extra: pip install 'regard[tensorboard]', tensorboard --logdir runs

The event file is written anew from metrics.jsonl whenever a run starts or resumes. So no point occurs twice, and steps
after the last checkpoint of a killed run do not appear.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from regard.training.run.run_dir import RunDir, read_metrics


class NotInstalledError(ValueError):
    """TensorBoard is not installed."""


def summary_writer_class() -> type[Any]:
    """Return torch's `SummaryWriter`, or raise an error that names the package to install."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise NotInstalledError(
            f"training.tensorboard needs the package tensorboard ({error}): pip install 'regard[tensorboard]', or "
            "remove the key; metrics.jsonl contains all metrics, and `regard plot` draws them"
        ) from None
    return SummaryWriter


@contextmanager
def write_events(run_dir: RunDir) -> Iterator[None]:
    """Write the metrics so far, and each line that is appended inside the block."""
    folder = run_dir.tensorboard
    shutil.rmtree(folder, ignore_errors=True)
    writer = summary_writer_class()(str(folder))

    def write_line(metrics: Mapping[str, Any]) -> None:
        add_scalars(writer, metrics)
        writer.flush()

    for metrics in read_metrics(run_dir.metrics) if run_dir.metrics.exists() else ():
        add_scalars(writer, metrics)
    run_dir.on_metrics = write_line
    try:
        yield
    finally:
        run_dir.on_metrics = None
        writer.close()


def add_scalars(writer: Any, metrics: Mapping[str, Any]) -> None:
    """Write a line of metrics: `loss` under train/loss, `valid_bleu` under valid/bleu. Skip averaged checkpoints."""
    if "averaged_steps" in metrics:
        return
    skipped = ("step", "epoch") if "valid_loss" in metrics else ("step",)
    for name, value in metrics.items():
        if name not in skipped and math.isfinite(value):
            tag = name.replace("valid_", "valid/", 1) if name.startswith("valid_") else f"train/{name}"
            writer.add_scalar(tag, value, metrics["step"])
