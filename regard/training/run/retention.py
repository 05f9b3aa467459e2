"""Which checkpoints to keep, to average, and to trust. `steps` are those of the existing checkpoints, in order."""

from __future__ import annotations

from collections.abc import Sequence

from regard.training.recipe.training_section import BestCheckpoints, LastCheckpoints, TrainingSection
from regard.training.run.state import TrainingProgress


def checkpoints_to_keep(steps: Sequence[int], settings: TrainingSection, progress: TrainingProgress) -> set[int]:
    """Return the checkpoints that are still needed: to resume, to fall back on, and to average."""
    last = scheduled_checkpoints(steps, settings, progress)[-settings.keep_checkpoints :]
    return {
        *steps[-1:],
        *last,
        *last_good_checkpoint(steps, settings, progress),
        *checkpoints_to_average(steps, settings, progress),
    }


def scheduled_checkpoints(steps: Sequence[int], settings: TrainingSection, progress: TrainingProgress) -> list[int]:
    """Return the checkpoints that every run of this recipe saves, without those saved at an interruption."""
    end = progress.step if progress.finished else None
    return [step for step in steps if step % settings.save_every == 0 or step == end]


def checkpoints_to_average(steps: Sequence[int], settings: TrainingSection, progress: TrainingProgress) -> list[int]:
    """Return the checkpoints that `average_checkpoints` selects now."""
    steps = scheduled_checkpoints(steps, settings, progress)
    match settings.average_checkpoints:
        case LastCheckpoints(count=count):
            return steps[-count:]
        case BestCheckpoints(count=count):
            evaluated = [step for step in steps if str(step) in progress.metric_by_step]
            lower_is_better = settings.is_better(0.0, 1.0)
            ranked = sorted(evaluated, key=lambda step: progress.metric_by_step[str(step)], reverse=not lower_is_better)
            return sorted(ranked[:count])
    return []


def last_good_checkpoint(steps: Sequence[int], settings: TrainingSection, progress: TrainingProgress) -> list[int]:
    """Return the last checkpoint before the loss rose: the one to resume from after a divergence. At most one step."""
    return [step for step in scheduled_checkpoints(steps, settings, progress) if step <= last_good_step(progress)][-1:]


def last_good_step(progress: TrainingProgress) -> int:
    """Return the last step with the lowest loss or the best metric so far."""
    if progress.lowest_loss is None:
        return progress.step  # too early to detect divergence
    return (
        progress.lowest_loss_step if progress.best_value is None else max(progress.lowest_loss_step, progress.best_step)
    )
