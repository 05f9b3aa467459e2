"""The `[training]` part of a recipe: how long, how fast, and what is kept."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.training.optim.optimizer import AdamW, Optimizer
from regard.training.optim.schedule import InverseRoot, Schedule
from regard.training.recipe.base import ByKind, Count, Flag, Part

FOREVER = 10**9
"""Updates that no run reaches: what is expected while nothing is known."""
LOWER_IS_BETTER = ("loss", "perplexity", "word_perplexity")
"""Of all other measures, more is better."""


class Last(Part):
    """The mean of the last few states."""

    kind: Literal["last"] = "last"
    count: Count = 5


class Best(Part):
    """The mean of the few states that did best on the validation data."""

    kind: Literal["best"] = "best"
    count: Count = 5


Average = Annotated[Last | Best, Field(discriminator="kind"), ByKind]


class Training(Part):
    """How a network is trained."""

    steps: Count | None = None
    """Updates of the parameters. Left out: as many as `minutes` allow."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """End after so much time in the loop, whatever step it is; the schedule ends there too. Two such runs differ."""
    tokens: Count = 4096
    """The most tokens of a batch, on each side."""
    accumulate: Count = 1
    """Batches that make one update: their gradients are added up, and divided by all their tokens."""
    optimizer: Optimizer = AdamW()
    """What turns gradients into changes: adamw, adafactor or muon, each with its rate."""
    schedule: Schedule = InverseRoot(warmup=400)
    """How the rate changes: constant, linear, cosine, inverse_root or noam, each with its warm-up."""
    clip: Annotated[float, Field(ge=0)] = 1.0
    """The longest gradient, as a vector of all parameters; a longer one is shortened. 0: never."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Keep a moving average of the parameters that keeps this share of itself at each step, and use it. 0: none."""
    average: Average | None = None
    """At the end, try the mean of several states: `{ kind = "best", count = 5 }`, or "last"."""
    report_every: Count = 50
    """Updates between two lines of metrics.jsonl."""
    evaluate_every: Count = 500
    """Updates between two evaluations on the validation data."""
    save_every: Count = 500
    """Updates between two states that a stopped run can go on from."""
    keep: Count = 2
    """How many states are kept, besides those that `average` needs, and the last from before the loss began to rise."""
    best: str = "loss"
    """The measure on the validation data by which the best network is known."""
    patience: Count | None = None
    """Stop after so many evaluations without a new best one. Left out: never."""
    freeze: tuple[str, ...] = ()
    """Parts that are not trained, by address: `["source", "encoder.blocks.0"]`."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Each layer learns so much slower than the one above it."""
    recompute: Flag = False
    """Gradient checkpointing: less memory, about a third more time."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """The type of the numbers in matrix products; the parameters stay float32."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, mps."""
    threads: Count | None = None
    """How many threads torch uses. Left out: as many as it chooses. Another number gives other last digits."""

    tensorboard: Flag = False
    """Write the metrics for TensorBoard too, to the folder `tensorboard` of the run. Needs `regard[tensorboard]`."""

    @model_validator(mode="after")
    def _ending(self) -> Training:
        if self.steps is None and self.minutes is None:
            raise ValueError("nothing says when to end: give steps = 8000 (updates of the parameters), or minutes = 60")
        return self

    @model_validator(mode="after")
    def _averaging(self) -> Training:
        if isinstance(self.average, Best) and self.evaluate_every % self.save_every:
            raise ValueError(
                "the mean of the best states needs a state at every evaluation: evaluate_every = "
                f"{self.evaluate_every} is no multiple of save_every = {self.save_every}"
            )
        return self

    def ended(self, step: int, seconds: float) -> bool:
        """Whether a run is at its end after so many updates, and so much time."""
        out_of_time = self.minutes is not None and seconds >= 60 * self.minutes
        return out_of_time or (self.steps is not None and step >= self.steps)

    def expected(self, step: int, seconds: float) -> int:
        """How many updates there will be in all: as many as are said, or as time allows at the speed so far."""
        said = FOREVER if self.steps is None else self.steps
        if self.minutes is None or not step or not seconds:
            return said
        return min(said, max(step + 1, math.ceil(step * 60 * self.minutes / seconds)))

    def better(self, new: float, old: float | None) -> bool:
        """Whether a value of the measure `best` beats another."""
        if math.isnan(new):
            return False
        return old is None or (new < old if self.best in LOWER_IS_BETTER else new > old)
