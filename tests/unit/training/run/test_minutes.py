"""Runs that end by the clock: one that the test turns, a second or less for each update."""

import pytest
from unit.training.tiny_data import write_recipe
from unit.training.tiny_loop import Fixed, loop, pairs

from regard.training.optim.schedule import Cosine, Linear
from regard.training.recipe.dry_run import outlook
from regard.training.recipe.schema import read
from regard.training.run import loop as looping
from regard.training.run import state
from regard.training.run.run_dir import read_metrics

SECOND = 1 / 60


class Clock:
    """Goes on only when an update is made."""

    def __init__(self, *seconds):
        self.now, self.left = 1000.0, list(seconds)

    def monotonic(self):
        return self.now

    def tick(self):
        self.now += self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """A loop whose updates take as long as is said; the last number again and again."""

    def make(*seconds, **plan):
        clock = Clock(*seconds)
        monkeypatch.setattr(looping, "time", clock)
        run = loop(
            tmp_path, Fixed(*[pairs(2, seed) for seed in range(3)]), **{"steps": None, "report_every": 1, **plan}
        )
        update = run.update
        run.update = lambda stream: (update(stream), clock.tick())[0]
        return run, clock

    return make


def rates(run):
    return [line["rate"] / run.plan.optimizer.rate for line in read_metrics(run.folder.metrics) if "rate" in line]


def test_it_ends_when_time_does_and_so_does_the_schedule(timed):
    run, _ = timed(1.0, minutes=10 * SECOND, schedule=Linear())
    assert run.run().step == 10
    assert rates(run)[1:] == pytest.approx([1 - step / 10 for step in range(2, 11)])
    assert rates(run)[0] == pytest.approx(1)  # nothing is known yet


def test_the_schedule_follows_the_speed(timed):
    run, _ = timed(*5 * [1.0], 0.5, minutes=10 * SECOND, schedule=Cosine(warmup=3))
    assert run.run().step == 15
    found = rates(run)
    assert found[:3] == pytest.approx([1 / 3, 2 / 3, 1])
    assert found[3:] == sorted(found[3:], reverse=True)
    assert found[-1] == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(("steps", "end"), [(4, 4), (400, 10)])
def test_steps_and_minutes_whichever_comes_first(timed, steps, end):
    run, _ = timed(1.0, steps=steps, minutes=10 * SECOND, schedule=Linear())
    assert run.run().step == end
    assert rates(run)[-1] == pytest.approx(0)


def test_a_run_that_goes_on_has_the_time_that_was_left(timed):
    run, clock = timed(1.0, minutes=10 * SECOND, save_every=4, schedule=Linear())
    stream = run.batches.at(0, 0)
    run.reporter.begin(0, None)
    for _ in range(6):
        run.advance(stream)
    clock.now += 3600  # it was off for an hour
    again, later = timed(1.0, minutes=10 * SECOND, save_every=4, schedule=Linear())
    later.now = 5.0
    again.restore(state.load(state.saved(run.folder.states)[4]))
    assert again.run().step == 10
    assert rates(again)[1:] == pytest.approx([1 - step / 10 for step in range(2, 11)])


def test_time_is_no_part_of_the_state_where_nothing_depends_on_it(timed):
    run, _ = timed(1.0, steps=3)
    assert run.run().seconds == 0


def test_what_is_left_is_said(timed):
    run, _ = timed(1.0, minutes=10 * SECOND)
    run.run()
    assert run.reporter.said[0] == "training: step 0 of as many as time allows"
    assert run.plan.expected(4, 4.0) == 10


def test_a_dry_run_says_what_ends_it(tmp_path):
    path = write_recipe(tmp_path)
    assert "24 updates of 2 × 96 tokens at most, in at most 1.5 minutes;" in outlook(
        read(path, ["training.minutes=1.5"])
    )
    path.write_text(path.read_text().replace("steps = 24\n", "minutes = 2\n"))
    assert "as many as 2 minutes allow; evaluated every 8, saved every 4" in outlook(read(path))
