"""The `[training]` section of a recipe: duration, optimizer, schedule, evaluation and checkpoints."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.training.optim.optimizer import AdamWConfig, OptimizerConfig
from regard.training.optim.schedule import InverseSqrtSchedule, ScheduleConfig
from regard.training.recipe.base import KindShorthand, PositiveInt, Section, StrictBool

MAX_THREADS = 1024
"""More threads than any machine has cores for; far more would end the process."""
LOWER_IS_BETTER = ("loss", "perplexity", "word_perplexity")
"""Of all other metrics, higher is better."""


class LastCheckpoints(Section):
    """Average the last checkpoints."""

    kind: Literal["last"] = "last"
    count: PositiveInt = 5
    """Number of checkpoints."""


class BestCheckpoints(Section):
    """Average the checkpoints with the best validation metric."""

    kind: Literal["best"] = "best"
    count: PositiveInt = 5
    """Number of checkpoints."""


CheckpointAveraging = Annotated[LastCheckpoints | BestCheckpoints, Field(discriminator="kind"), KindShorthand]


class TrainingSection(Section):
    """How to train the network."""

    steps: PositiveInt | None = None
    """Number of optimizer steps. Default: as many as `minutes` allows."""
    epochs: Annotated[float, Field(gt=0)] | None = None
    """Number of passes over the training data, instead of `steps`."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """Wall-clock limit of everything: preparation, steps and evaluations; the schedule ends there too, and the warm-up
    takes at most a tenth of it. Such runs are not reproducible."""
    batch_tokens: PositiveInt = 4096
    """Maximum number of tokens in a batch, for source and target each."""
    gradient_accumulation_steps: PositiveInt = 1
    """Batches per optimizer step. Their gradients are summed and divided by the number of all their tokens."""
    optimizer: OptimizerConfig = AdamWConfig()
    """adamw, adafactor or muon, each with its learning rate."""
    schedule: ScheduleConfig = InverseSqrtSchedule(warmup_steps=400)
    """Learning-rate schedule: constant, linear, cosine, inverse_sqrt or noam, each with its warm-up."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Clip the global norm of the gradient to this value; 0 disables clipping."""
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay of an exponential moving average of the parameters, which is evaluated and saved; 0 disables it."""
    average_checkpoints: CheckpointAveraging | None = None
    """At the end, evaluate the average of several checkpoints: `{ kind = "best", count = 5 }`, or "last"."""
    log_every: PositiveInt = 50
    """Optimizer steps between two lines of metrics.jsonl."""
    evaluate_every: PositiveInt = 500
    """Optimizer steps between two evaluations on the validation data."""
    save_every: PositiveInt = 500
    """Optimizer steps between two checkpoints."""
    keep_checkpoints: PositiveInt = 2
    """Checkpoints to keep, besides those needed for averaging and the last one before the loss rose."""
    best_metric: str = "loss"
    """Validation metric that selects the best model."""
    patience: PositiveInt | None = None
    """Stop after this many evaluations without improvement. Default: never."""
    freeze: tuple[str, ...] = ()
    """Modules whose parameters are not trained, by address: `["source", "encoder.blocks.0"]`."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Layer-wise learning-rate decay: the learning rate of a layer is this factor times that of the layer above."""
    gradient_checkpointing: StrictBool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Data type of matrix products; parameters stay float32."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, mps."""
    threads: Annotated[PositiveInt, Field(le=MAX_THREADS)] | None = None
    """CPU threads; `--threads` sets it too. Default: the CPUs of the process by affinity or cgroup quota, whichever
    is lower. Another number changes the last digits of the results."""
    tensorboard: StrictBool = False
    """Also write the metrics for TensorBoard, to `tensorboard/` in the run directory. Needs `regard[tensorboard]`."""

    @model_validator(mode="after")
    def _check_limits(self) -> TrainingSection:
        if self.steps is None and self.minutes is None and self.epochs is None:
            raise ValueError("no limit: set steps = 8000 (optimizer steps), epochs = 10 or minutes = 60")
        if self.steps is not None and self.epochs is not None:
            raise ValueError(
                f"steps = {self.steps} and epochs = {self.epochs:g} are two limits of one kind: remove one"
            )
        return self

    @model_validator(mode="after")
    def _check_averaging(self) -> TrainingSection:
        if isinstance(self.average_checkpoints, BestCheckpoints) and self.evaluate_every % self.save_every:
            raise ValueError(
                "average_checkpoints = 'best' needs a checkpoint at every evaluation: evaluate_every = "
                f"{self.evaluate_every} is not a multiple of save_every = {self.save_every}"
            )
        return self

    def is_better(self, new: float, old: float | None) -> bool:
        """Whether one value of `best_metric` is better than another. NaN never is."""
        if math.isnan(new):
            return False
        return old is None or (new < old if self.best_metric in LOWER_IS_BETTER else new > old)
