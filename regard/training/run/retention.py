"""Which states of a run are kept, and which of them are surely good. `there` are the steps of the states, in order."""

from __future__ import annotations

from collections.abc import Sequence

from regard.training.recipe.training_section import Best, Last, Training
from regard.training.run.state import Progress


def wanted(there: Sequence[int], plan: Training, now: Progress) -> set[int]:
    """The steps whose states are still needed: to go on from, to fall back on, and to make the mean of."""
    last = planned(there, plan, now)[-plan.keep :]
    return {*there[-1:], *last, *good(there, plan, now), *to_average(there, plan, now)}


def planned(there: Sequence[int], plan: Training, now: Progress) -> list[int]:
    """The states that any run of this recipe writes, whether or not it was stopped in between."""
    end = now.step if now.finished else None
    return [step for step in there if step % plan.save_every == 0 or step == end]


def to_average(there: Sequence[int], plan: Training, now: Progress) -> list[int]:
    """The states of which `average` would make the mean now."""
    there = planned(there, plan, now)
    match plan.average:
        case Last(count=count):
            return there[-count:]
        case Best(count=count):
            scored = [step for step in there if str(step) in now.scores]
            lower = plan.better(0.0, 1.0)
            ranked = sorted(scored, key=lambda step: now.scores[str(step)], reverse=not lower)
            return sorted(ranked[:count])
    return []


def good(there: Sequence[int], plan: Training, now: Progress) -> list[int]:
    """The last state that is surely good: the one to go on from, should the loss be found to have risen since."""
    return [step for step in planned(there, plan, now) if step <= good_until(now)][-1:]


def good_until(now: Progress) -> int:
    """The last step that was surely good: the loss has never been lower, or the network never better."""
    if now.lowest is None:
        return now.step  # nobody judges yet
    return now.lowest_step if now.best is None else max(now.lowest_step, now.best_step)
