"""Learning-rate schedules. They are pure functions of the step, so checkpoints need no state for them.

Constant      ______          Linear       \\          Cosine   -.         InverseSqrt, Noam   |\\_
             /                            / \\                  /  \\                           /  `--.__
             warm-up                     /   \\                /    `-                        /
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from regard.training.recipe.base import Integer, KindShorthand, PositiveInt, Section

StepCount = Annotated[Integer, Field(ge=0)]
Ratio = Annotated[float, Field(ge=0, le=1)]


class ConstantSchedule(Section):
    """The full learning rate after a linear warm-up."""

    kind: Literal["constant"] = "constant"
    warmup_steps: StepCount = 0
    """Optimizer steps of linear warm-up from zero."""


class LinearSchedule(Section):
    """Linear decay to `min_lr_ratio` at the last step (BERT)."""

    kind: Literal["linear"] = "linear"
    warmup_steps: StepCount = 0
    """Optimizer steps of linear warm-up from zero."""
    min_lr_ratio: Ratio = 0.0
    """Learning rate at the last step, as a fraction of `lr`."""


class CosineSchedule(Section):
    """Cosine decay to `min_lr_ratio` at the last step (Loshchilov and Hutter 2017)."""

    kind: Literal["cosine"] = "cosine"
    warmup_steps: StepCount = 0
    """Optimizer steps of linear warm-up from zero."""
    min_lr_ratio: Ratio = 0.0
    """Learning rate at the last step, as a fraction of `lr`."""


class InverseSqrtSchedule(Section):
    """The full learning rate at the end of the warm-up, then proportional to 1/√step."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    warmup_steps: PositiveInt = 4000
    """Optimizer steps of linear warm-up from zero."""


class NoamSchedule(Section):
    """The schedule of Vaswani et al. 2017, section 5.3: model_dim^-0.5 · min(step^-0.5, step · warmup_steps^-1.5).

    It is `InverseSqrtSchedule` with a peak that depends on the sizes; `lr` is one more factor (in the paper: 1).
    """

    kind: Literal["noam"] = "noam"
    warmup_steps: PositiveInt = 4000
    """Optimizer steps of linear warm-up from zero."""


ScheduleConfig = Annotated[
    ConstantSchedule | LinearSchedule | CosineSchedule | InverseSqrtSchedule | NoamSchedule,
    Field(discriminator="kind"),
    KindShorthand,
]


def lr_factor(
    schedule: ConstantSchedule | LinearSchedule | CosineSchedule | InverseSqrtSchedule | NoamSchedule,
    step: int,
    steps: int,
    model_dim: int,
    shorter_warmup: int | None = None,
) -> float:
    """Return the factor of the optimizer's learning rate at a step. Steps count from 1 to `steps`.

    With `shorter_warmup`, the warm-up takes fewer steps than in the recipe; the highest learning rate is the same.
    """
    if shorter_warmup is not None:
        shorter = schedule.model_copy(update={"warmup_steps": shorter_warmup})
        # The highest factor of Noam's schedule depends on the warm-up.
        scale = (shorter_warmup / schedule.warmup_steps) ** 0.5 if isinstance(schedule, NoamSchedule) else 1.0
        return scale * lr_factor(shorter, step, steps, model_dim)
    match schedule:
        case NoamSchedule(warmup_steps=warmup):
            return float(model_dim**-0.5 * min(step**-0.5, step * warmup**-1.5))
        case InverseSqrtSchedule(warmup_steps=warmup):
            return min(step / warmup, math.sqrt(warmup / step))
    if step < schedule.warmup_steps:
        return step / schedule.warmup_steps
    match schedule:
        case ConstantSchedule():
            return 1.0
        case LinearSchedule(min_lr_ratio=final):
            return final + (1 - final) * (1 - _decay_progress(schedule.warmup_steps, step, steps))
        case CosineSchedule(min_lr_ratio=final):
            progress = _decay_progress(schedule.warmup_steps, step, steps)
            return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2


def _decay_progress(warmup_steps: int, step: int, steps: int) -> float:
    """Return the fraction of the steps after the warm-up that are done."""
    return min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
