"""Which states are kept. The steps of the states are all that counts, so nothing is trained here."""

import pytest

from regard.training.recipe.training_section import Best, Last, Training
from regard.training.run.retention import good, planned, to_average, wanted
from regard.training.run.state import Progress

THERE = [10, 13, 20, 30, 33]
"""With a state at every 10 steps, 13 and 33 are of stops in between."""


def plan(**others):
    return Training(tokens=10, steps=50, save_every=10, evaluate_every=10, keep=1, **others)


def test_states_of_stops_are_none_of_the_plan():
    assert planned(THERE, plan(), Progress(step=33)) == [10, 20, 30]
    assert planned(THERE, plan(), Progress(step=33, finished=True)) == [10, 20, 30, 33]


@pytest.mark.parametrize(
    ("average", "expected"),
    [(None, []), (Last(count=2), [20, 30]), (Best(count=1), [20]), (Best(count=9), [10, 20, 30])],
)
def test_the_mean_is_of_planned_states(average, expected):
    now = Progress(step=33, scores={"10": 3.0, "13": 0.5, "20": 1.0, "30": 2.0, "33": 0.1})
    assert to_average(THERE, plan(average=average), now) == expected


@pytest.mark.parametrize(
    ("lowest_step", "best", "best_step", "expected"),
    [(25, None, 0, [20]), (25, 1.0, 30, [30]), (5, None, 0, []), (5, 1.0, 12, [10])],
)
def test_a_state_is_good_until_the_loss_was_lowest_or_the_network_best(lowest_step, best, best_step, expected):
    now = Progress(step=33, lowest=0.5, lowest_step=lowest_step, best=best, best_step=best_step)
    assert good(THERE, plan(), now) == expected


def test_all_are_good_while_nobody_judges():
    assert good(THERE, plan(), Progress(step=33)) == [30]


def test_what_is_wanted():
    """To go on from (33), the last of the plan (30), the last that is good (10), and those of the mean (20, 30)."""
    now = Progress(step=33, lowest=0.5, lowest_step=12)
    assert wanted(THERE, plan(average=Last(count=2)), now) == {10, 20, 30, 33}
    assert wanted(THERE, plan(), now) == {10, 30, 33}
