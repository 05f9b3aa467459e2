import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.training.optim.schedule import (
    ConstantSchedule,
    CosineSchedule,
    InverseSqrtSchedule,
    LinearSchedule,
    NoamSchedule,
    lr_factor,
)

STEPS = 1000


def at(schedule, step, model_dim=512):
    return lr_factor(schedule, step, STEPS, model_dim)


@pytest.mark.parametrize("step", [1, 2, 399, 400, 401, 4000, 100000])
@pytest.mark.parametrize("model_dim", [128, 512])
def test_noam_is_the_formula_of_the_paper(step, model_dim):
    expected = model_dim**-0.5 * min(step**-0.5, step * 400**-1.5)
    assert at(NoamSchedule(warmup_steps=400), step, model_dim) == pytest.approx(expected, rel=1e-14)


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_noam_is_an_inverse_root_of_another_height(step, warmup):
    height = 512**-0.5 * warmup**-0.5
    assert at(NoamSchedule(warmup_steps=warmup), step) == pytest.approx(
        height * at(InverseSqrtSchedule(warmup_steps=warmup), step), rel=1e-12
    )


@pytest.mark.parametrize("kind", [ConstantSchedule, LinearSchedule, CosineSchedule])
def test_warm_up_is_a_straight_line_to_the_full_rate(kind):
    assert [at(kind(warmup_steps=4), step) for step in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("step", [100, 101, 550, 999, 1000])
def test_after_the_warm_up(step):
    share = (step - 100) / 900
    assert at(ConstantSchedule(warmup_steps=100), step) == 1
    assert at(LinearSchedule(warmup_steps=100, min_lr_ratio=0.1), step) == pytest.approx(1 - 0.9 * share)
    assert at(CosineSchedule(warmup_steps=100, min_lr_ratio=0.1), step) == pytest.approx(
        0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * share))
    )


@pytest.mark.parametrize("kind", [LinearSchedule, CosineSchedule])
def test_it_ends_where_it_should_and_stays_there(kind):
    assert at(kind(warmup_steps=10), STEPS) == pytest.approx(0, abs=1e-12)
    assert at(kind(warmup_steps=10, min_lr_ratio=0.2), STEPS) == pytest.approx(0.2)
    assert at(kind(warmup_steps=10, min_lr_ratio=0.2), STEPS + 50) == pytest.approx(0.2)
    assert at(kind(warmup_steps=STEPS), STEPS) == 1  # nothing but warm-up


@given(st.integers(1, STEPS - 1), st.integers(0, 300), st.sampled_from([LinearSchedule, CosineSchedule]))
def test_it_rises_and_then_falls(step, warmup, kind):
    schedule = kind(warmup_steps=warmup)
    now, then = at(schedule, step), at(schedule, step + 1)
    assert 0 <= now <= 1
    assert (then > now) if step + 1 <= warmup else (then <= now)
