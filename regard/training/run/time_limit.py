"""The wall-clock limit of a run: how much of it is left for optimizer steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.training.recipe.training_section import TrainingSection

MIN_WARMUP_STEPS = 10
MAX_WARMUP_SHARE = 0.1
"""With a limit in minutes, the warm-up takes at most this share of the run, but at least `MIN_WARMUP_STEPS`."""
MAX_RESERVE_SHARE = 0.5
"""At most this share of the time after the preparation is kept for evaluations, so that there is training too."""
UNLIMITED_STEPS = 10**9
"""More steps than any run reaches: the expected number while the speed is unknown."""


@dataclass
class TimeLimit:
    """Divides the time of a run: everything counts, the preparation of the data and the evaluations too."""

    settings: TrainingSection
    evaluation_seconds: float = 0.0
    """How long one evaluation takes: estimated before the first one, then measured."""
    first_step: int = 0
    first_step_seconds: float = 0.0
    """Step and elapsed seconds when the steps of this process began, to know their speed."""

    @property
    def seconds(self) -> float:
        """The limit."""
        return math.inf if self.settings.minutes is None else 60 * self.settings.minutes

    @property
    def reserve(self) -> float:
        """Seconds for the evaluations at the end: of the last step, and of the average of checkpoints."""
        if not self.evaluation_seconds:  # the limit may be infinite
            return 0.0
        count = 1 if self.settings.average_checkpoints is None else 2
        return min(count * self.evaluation_seconds, MAX_RESERVE_SHARE * (self.seconds - self.first_step_seconds))

    def is_over(self, elapsed: float) -> bool:
        """Whether only the evaluations at the end have time left."""
        return elapsed + self.reserve >= self.seconds

    def allows_evaluation(self, elapsed: float) -> bool:
        """Whether there is time for an evaluation that is not the last one."""
        return elapsed + self.evaluation_seconds + self.reserve < self.seconds

    def expected_steps(self, step: int, elapsed: float) -> int:
        """Return the total number of steps: the limit, or fewer if the time ends first at the speed so far."""
        limit = self.settings.steps or UNLIMITED_STEPS
        done, spent = step - self.first_step, elapsed - self.first_step_seconds
        if not done:  # the first step of a resumed run: the speed is that of the steps before
            done, spent = step, elapsed
        if self.settings.minutes is None or not done or spent <= 0:
            return limit
        left = max(0.0, self.seconds - self.reserve - elapsed)
        # The tolerance is for seconds that add up to a whole number of steps but for rounding.
        return min(limit, step + math.ceil(left * done / spent - 1e-6))

    def warmup_steps(self, expected_steps: int) -> int | None:
        """Return the length of the warm-up if it has to be shorter than in the recipe."""
        longest = max(MIN_WARMUP_STEPS, math.ceil(MAX_WARMUP_SHARE * expected_steps))
        return longest if self.settings.minutes is not None and self.settings.schedule.warmup_steps > longest else None
