"""The mean of several states' parameters (Vaswani et al. 2017 averaged the last 5 or 20)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from regard.training.run.state import TENSORS

PARAMETER, AVERAGE = "parameter/", "ema/"


def mean(places: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the parameters of these states, by name. Added up in float64, one state at a time.

    Where a state has moving averages of parameters, these are meant: the network was measured, and is used, with them.
    """
    if not places:
        raise ValueError("there is no state to make a mean of")
    total: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    for place in places:
        with safe_open(place / TENSORS, framework="pt") as file:
            keys = sorted(file.keys())
            for name in [key.removeprefix(PARAMETER) for key in keys if key.startswith(PARAMETER)]:
                value = file.get_tensor(AVERAGE + name if AVERAGE + name in keys else PARAMETER + name)
                types[name] = value.dtype
                total[name] = value.double() if name not in total else total[name].add_(value)
    return {name: (value / len(places)).to(types[name]) for name, value in total.items()}
