"""How the rate of learning changes from step to step. Pure functions of the step: there is nothing to save.

Constant      ______          Linear       \\          Cosine   -.         InverseRoot, Noam   |\\_
             /                            / \\                  /  \\                           /  `--.__
             warm-up                     /   \\                /    `-                        /
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from regard.training.recipe.base import ByKind, Count, Part, Whole

Steps = Annotated[Whole, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Constant(Part):
    """The full rate after the warm-up."""

    kind: Literal["constant"] = "constant"
    warmup: Steps = 0
    """Updates over which the rate rises from zero."""


class Linear(Part):
    """Down in a straight line, to `end` at the last step (BERT)."""

    kind: Literal["linear"] = "linear"
    warmup: Steps = 0
    end: Share = 0.0
    """What is left of the rate at the last step, as a share of it."""


class Cosine(Part):
    """Down along half a cosine, to `end` at the last step (Loshchilov and Hutter 2017)."""

    kind: Literal["cosine"] = "cosine"
    warmup: Steps = 0
    end: Share = 0.0
    """What is left of the rate at the last step, as a share of it."""


class InverseRoot(Part):
    """The full rate when the warm-up ends, then falling with the root of the step."""

    kind: Literal["inverse_root"] = "inverse_root"
    warmup: Count = 4000


class Noam(Part):
    """The paper's own (Vaswani et al. 2017, section 5.3): model_dim^-0.5 · min(step^-0.5, step · warmup^-1.5).

    It is `InverseRoot` with a height that follows from the sizes; the rate is one more factor (in the paper: 1).
    """

    kind: Literal["noam"] = "noam"
    warmup: Count = 4000


Schedule = Annotated[Constant | Linear | Cosine | InverseRoot | Noam, Field(discriminator="kind"), ByKind]


def factor(schedule: Constant | Linear | Cosine | InverseRoot | Noam, step: int, steps: int, model_dim: int) -> float:
    """What the optimizer's rate is multiplied by at a step. Steps count from 1 to `steps`."""
    match schedule:
        case Noam(warmup=warmup):
            return float(model_dim**-0.5 * min(step**-0.5, step * warmup**-1.5))
        case InverseRoot(warmup=warmup):
            return min(step / warmup, math.sqrt(warmup / step))
    if step < schedule.warmup:
        return step / schedule.warmup
    match schedule:
        case Constant():
            return 1.0
        case Linear(end=end):
            return end + (1 - end) * (1 - _done(schedule.warmup, step, steps))
        case Cosine(end=end):
            return end + (1 - end) * (1 + math.cos(math.pi * _done(schedule.warmup, step, steps))) / 2


def _done(warmup: int, step: int, steps: int) -> float:
    """Which share of the way from the end of the warm-up to the last step lies behind."""
    return min(1.0, (step - warmup) / max(1, steps - warmup))
