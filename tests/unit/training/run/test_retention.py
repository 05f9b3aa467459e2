"""Which checkpoints are kept. It depends on their steps only, so nothing is trained here."""

import pytest

from regard.training.recipe.training_section import BestCheckpoints, LastCheckpoints, TrainingSection
from regard.training.run.retention import (
    checkpoints_to_average,
    checkpoints_to_keep,
    last_good_checkpoint,
    scheduled_checkpoints,
)
from regard.training.run.state import TrainingProgress

THERE = [10, 13, 20, 30, 33]
"""With a checkpoint every 10 steps, 13 and 33 are those of interruptions."""


def plan(**others):
    return TrainingSection(batch_tokens=10, steps=50, save_every=10, evaluate_every=10, keep_checkpoints=1, **others)


def test_states_of_stops_are_none_of_the_plan():
    assert scheduled_checkpoints(THERE, plan(), TrainingProgress(step=33)) == [10, 20, 30]
    assert scheduled_checkpoints(THERE, plan(), TrainingProgress(step=33, finished=True)) == [10, 20, 30, 33]


@pytest.mark.parametrize(
    ("average", "expected"),
    [
        (None, []),
        (LastCheckpoints(count=2), [20, 30]),
        (BestCheckpoints(count=1), [20]),
        (BestCheckpoints(count=9), [10, 20, 30]),
    ],
)
def test_the_mean_is_of_planned_states(average, expected):
    now = TrainingProgress(step=33, metric_by_step={"10": 3.0, "13": 0.5, "20": 1.0, "30": 2.0, "33": 0.1})
    assert checkpoints_to_average(THERE, plan(average_checkpoints=average), now) == expected


@pytest.mark.parametrize(
    ("lowest_step", "best", "best_step", "expected"),
    [(25, None, 0, [20]), (25, 1.0, 30, [30]), (5, None, 0, []), (5, 1.0, 12, [10])],
)
def test_a_state_is_good_until_the_loss_was_lowest_or_the_network_best(lowest_step, best, best_step, expected):
    now = TrainingProgress(step=33, lowest_loss=0.5, lowest_loss_step=lowest_step, best_value=best, best_step=best_step)
    assert last_good_checkpoint(THERE, plan(), now) == expected


def test_all_are_good_while_nobody_judges():
    assert last_good_checkpoint(THERE, plan(), TrainingProgress(step=33)) == [30]


def test_what_is_wanted():
    """To resume (33), the last scheduled one (30), the last good one (10), and those to average (20, 30)."""
    now = TrainingProgress(step=33, lowest_loss=0.5, lowest_loss_step=12)
    assert checkpoints_to_keep(THERE, plan(average_checkpoints=LastCheckpoints(count=2)), now) == {10, 20, 30, 33}
    assert checkpoints_to_keep(THERE, plan(), now) == {10, 30, 33}
