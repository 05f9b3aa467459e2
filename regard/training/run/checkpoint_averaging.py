"""Checkpoint averaging: the mean of the parameters (Vaswani et al. 2017 averaged the last 5 or 20)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from regard.training.run.state import TENSORS_FILE

PARAMETER_PREFIX, EMA_PREFIX = "parameter/", "ema/"


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the parameters of these checkpoints by name, summed in float64, one checkpoint at a time.

    If a checkpoint has an EMA of the parameters, the EMA is averaged: the network was evaluated with it.
    """
    if not paths:
        raise ValueError("no checkpoints to average")
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for path in paths:
        with safe_open(path / TENSORS_FILE, framework="pt") as file:
            keys = sorted(file.keys())
            for name in [key.removeprefix(PARAMETER_PREFIX) for key in keys if key.startswith(PARAMETER_PREFIX)]:
                value = file.get_tensor(EMA_PREFIX + name if EMA_PREFIX + name in keys else PARAMETER_PREFIX + name)
                dtypes[name] = value.dtype
                total[name] = value.double() if name not in total else total[name].add_(value)
    return {name: (value / len(paths)).to(dtypes[name]) for name, value in total.items()}
