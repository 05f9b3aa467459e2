"""Runs with a time limit, on a clock that the test advances by a second or less per step."""

import pytest
from unit.training.recipes import load_recipe
from unit.training.tiny_data import write_recipe
from unit.training.tiny_loop import Fixed, loop, pairs

from regard.training.optim.schedule import CosineSchedule, LinearSchedule, NoamSchedule, lr_factor
from regard.training.recipe.dry_run import describe_run
from regard.training.run import evaluation_monitor, state
from regard.training.run import loop as looping
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


def test_what_is_left_is_shown(timed):
    """The limit is named, and the time left is that of the limit, not that of the steps."""
    run, _ = timed(1.0, minutes=10 * SECOND, steps=400)
    run.reporter.seconds = 0  # a line for each step
    run.run()
    assert run.reporter.lines[0] == "training: step 0 of at most 400, for at most 0.166667 minutes"
    assert run.reporter.lines[4].endswith("0:06 left")
    assert "step 4 of about 10  loss" in run.reporter.lines[4]


def test_a_limit_by_steps_is_shown_as_such(timed):
    run, _ = timed(1.0, minutes=10 * SECOND)
    run.run()
    assert run.reporter.lines[0] == "training: step 0, for 0.166667 minutes"


@pytest.fixture
def evaluated(timed, monkeypatch):
    """A loop with an evaluation that takes the given seconds, for all of 64 items; the trial computes 16 of them."""

    def make(step_seconds, evaluation_seconds, **plan):
        run, clock = timed(step_seconds, **plan)
        monkeypatch.setattr(evaluation_monitor, "time", clock)
        losses = iter(range(100, 0, -1))
        run.computed = []

        def evaluate():
            metrics = {}
            with run.monitor.stage("loss"):
                for _ in run.monitor.track(run.monitor.select(range(64)), 64):
                    clock.now += evaluation_seconds / 64
                metrics["loss"] = float(next(losses))
            run.computed.append((clock.now - 1000, run.monitor.trial, run.monitor.timed_out))
            return metrics

        run.evaluate = evaluate
        return run, clock

    return make


def test_evaluations_are_inside_the_limit(evaluated):
    run, clock = evaluated(1.0, 8.0, minutes=60 * SECOND, evaluate_every=20)
    progress = run.run()
    assert clock.now - 1000 == pytest.approx(60, abs=1.01)
    assert [trial for _, trial, _ in run.computed] == [True, False, False]
    assert progress.step == pytest.approx(60 - 2 - 2 * 8, abs=1)  # the trial took 2 seconds
    assert progress.best_step == progress.step
    assert progress.seconds == 60


def test_an_evaluation_that_is_quicker_than_estimated_is_the_last_one_all_the_same(evaluated):
    run, clock = evaluated(1.0, 20.0, minutes=60 * SECOND)
    slow = run.evaluate

    def evaluate():
        before = clock.now
        metrics = slow()
        if not run.monitor.trial:
            clock.now = before + 2.0
            run.monitor.seconds = 2.0
        return metrics

    run.evaluate = evaluate
    progress = run.run()
    assert [trial for _, trial, _ in run.computed] == [True, False]
    assert progress.finished
    assert progress.seconds == 60


def test_an_evaluation_for_which_no_time_is_left_is_left_out(evaluated):
    """The one at the end is enough."""
    run, clock = evaluated(1.0, 8.0, minutes=60 * SECOND, evaluate_every=45)
    run.run()
    assert [trial for _, trial, _ in run.computed] == [True, False]
    assert clock.now - 1000 == pytest.approx(60, abs=1.01)


def test_an_evaluation_that_is_too_long_ends_with_the_limit(evaluated):
    """The model is saved all the same, and the log says what is missing."""
    run, clock = evaluated(1.0, 90.0, minutes=60 * SECOND, evaluate_every=500)
    progress = run.run()
    assert clock.now - 1000 == pytest.approx(60, abs=2.5)  # an item takes 1.4 seconds
    assert progress.step >= 5
    assert (run.run_dir.best / "weights").exists()
    assert run.run_dir.best_info() == {"step": progress.step, "value": None}
    log = "\n".join(run.reporter.lines)
    assert "one evaluation takes about 90 s of the limit of 60 s" in log
    assert "the time limit ended the evaluation" in log


def test_an_evaluation_shows_its_progress(evaluated):
    run, _ = evaluated(1.0, 64.0, steps=2, minutes=None)
    run.monitor.report = run.reporter.show_evaluation
    run.reporter.seconds = 0
    run.run()
    shown = [line for line in run.reporter.lines if line.startswith("evaluating")]
    assert shown[0] == "evaluating: loss, 1 of 64"
    assert len(shown) == 64


def test_the_preparation_is_inside_the_limit(timed):
    run, _ = timed(1.0, minutes=30 * SECOND)
    run.preparation_seconds = 12.0
    assert run.run().step == 18


def test_the_warm_up_takes_at_most_a_tenth_of_the_time(timed):
    """100 of 115 steps were warm-up."""
    run, _ = timed(1.0, minutes=200 * SECOND, schedule=LinearSchedule(warmup_steps=150))
    run.run()
    found = rates(run)
    assert max(found) == pytest.approx(1, abs=0.01)
    assert found.index(max(found)) + 1 == pytest.approx(20, abs=1)
    assert found[-1] == pytest.approx(0, abs=0.02)


def test_the_peak_of_noam_is_that_of_the_recipe():
    schedule = NoamSchedule(warmup_steps=400)
    peak = lr_factor(schedule, 400, 1000, 64)
    assert lr_factor(schedule, 40, 100, 64, shorter_warmup=40) == pytest.approx(peak)
    assert lr_factor(schedule, 20, 100, 64, shorter_warmup=40) == pytest.approx(peak / 2)
    assert lr_factor(schedule, 160, 100, 64, shorter_warmup=40) == pytest.approx(peak / 2)


def test_a_run_that_used_its_time_is_finished_when_it_resumes(evaluated):
    run, _ = evaluated(1.0, 8.0, minutes=60 * SECOND, evaluate_every=20)
    run.run()
    again, _ = evaluated(1.0, 8.0, minutes=60 * SECOND, evaluate_every=20)
    again.restore(state.load_checkpoint(list(state.list_checkpoints(run.run_dir.checkpoints).values())[-1]))
    assert again.progress.finished


def test_a_dry_run_says_what_ends_it(tmp_path):
    path = write_recipe(tmp_path)
    assert "24 optimizer steps of at most 2 × 96 tokens, in at most 1.5 minutes;" in describe_run(
        load_recipe(path, ["training.minutes=1.5"])
    )
    path.write_text(path.read_text().replace("steps = 24\n", "minutes = 2\n"))
    assert "until 2 minutes have passed; evaluated every 8, saved every 4" in describe_run(load_recipe(path))
