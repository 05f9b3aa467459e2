"""Runs with a time limit, on a clock that the test advances by a second or less per step."""

import pytest
from unit.training.recipes import load_recipe
from unit.training.tiny_data import write_recipe
from unit.training.tiny_loop import Fixed, loop, pairs

from regard.training.optim.schedule import CosineSchedule, LinearSchedule
from regard.training.recipe.dry_run import describe_run
from regard.training.run import loop as looping
from regard.training.run import state
from regard.training.run.run_dir import read_metrics

SECOND = 1 / 60


class Clock:
    """Advances with each optimizer step."""

    def __init__(self, *seconds):
        self.now, self.left = 1000.0, list(seconds)

    def monotonic(self):
        return self.now

    def tick(self):
        self.now += self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """A loop whose steps take the given seconds; the last number is repeated."""

    def make(*seconds, **plan):
        clock = Clock(*seconds)
        monkeypatch.setattr(looping, "time", clock)
        run = loop(tmp_path, Fixed(*[pairs(2, seed) for seed in range(3)]), **{"steps": None, "log_every": 1, **plan})
        update = run.update
        run.update = lambda stream: (update(stream), clock.tick())[0]
        return run, clock

    return make


def rates(run):
    return [line["lr"] / run.settings.optimizer.lr for line in read_metrics(run.run_dir.metrics) if "lr" in line]


def test_it_ends_when_time_does_and_so_does_the_schedule(timed):
    run, _ = timed(1.0, minutes=10 * SECOND, schedule=LinearSchedule())
    assert run.run().step == 10
    assert rates(run)[1:] == pytest.approx([1 - step / 10 for step in range(2, 11)])
    assert rates(run)[0] == pytest.approx(1)  # the speed is unknown yet


def test_the_schedule_follows_the_speed(timed):
    run, _ = timed(*5 * [1.0], 0.5, minutes=10 * SECOND, schedule=CosineSchedule(warmup_steps=3))
    assert run.run().step == 15
    found = rates(run)
    assert found[:3] == pytest.approx([1 / 3, 2 / 3, 1])
    assert found[3:] == sorted(found[3:], reverse=True)
    assert found[-1] == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(("steps", "end"), [(4, 4), (400, 10)])
def test_steps_and_minutes_whichever_comes_first(timed, steps, end):
    run, _ = timed(1.0, steps=steps, minutes=10 * SECOND, schedule=LinearSchedule())
    assert run.run().step == end
    assert rates(run)[-1] == pytest.approx(0)


def test_a_run_that_goes_on_has_the_time_that_was_left(timed):
    run, clock = timed(1.0, minutes=10 * SECOND, save_every=4, schedule=LinearSchedule())
    stream = run.batches.iter_from(0, 0)
    run.reporter.begin(0, None)
    for _ in range(6):
        run.run_step(stream)
    clock.now += 3600  # it was stopped for an hour
    again, later = timed(1.0, minutes=10 * SECOND, save_every=4, schedule=LinearSchedule())
    later.now = 5.0
    again.restore(state.load_checkpoint(state.list_checkpoints(run.run_dir.checkpoints)[4]))
    assert again.run().step == 10
    assert rates(again)[1:] == pytest.approx([1 - step / 10 for step in range(2, 11)])


def test_time_is_no_part_of_the_state_where_nothing_depends_on_it(timed):
    run, _ = timed(1.0, steps=3)
    assert run.run().seconds == 0


def test_what_is_left_is_said(timed):
    run, _ = timed(1.0, minutes=10 * SECOND)
    run.run()
    assert run.reporter.lines[0] == "training: step 0, until the time limit"
    assert run.settings.expected_steps(4, 4.0) == 10


def test_a_dry_run_says_what_ends_it(tmp_path):
    path = write_recipe(tmp_path)
    assert "24 optimizer steps of at most 2 × 96 tokens, in at most 1.5 minutes;" in describe_run(
        load_recipe(path, ["training.minutes=1.5"])
    )
    path.write_text(path.read_text().replace("steps = 24\n", "minutes = 2\n"))
    assert "until 2 minutes have passed; evaluated every 8, saved every 4" in describe_run(load_recipe(path))
