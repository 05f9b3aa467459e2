"""The progress display."""

import pytest

from regard.training.run import reporter
from regard.training.run.reporter import LineReporter


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(reporter.time, "monotonic", lambda: now[0])
    return now


def test_speed_and_time_left_are_those_of_updates_after_the_first(clock, capsys):
    """The first step builds the native library, and takes as long as fifty others."""
    lines = LineReporter(None)
    lines.begin(0, 100)
    clock[0] += 50
    lines.update(1, 100, 4.0, 1000)
    for step in range(2, 12):
        clock[0] += 1
        lines.update(step, 100, 2.0, 1000)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "training: step 0 of 100",
        "step 1/100  loss 4.0000",
        "step 11/100  loss 2.0000  1,000 tokens/s  1:29 left",
    ]


def test_a_run_that_goes_on_counts_from_where_it_was(clock, capsys):
    lines = LineReporter(None)
    lines.begin(60, 100)
    for step in (61, 62):
        clock[0] += 10
        lines.update(step, 100, 1.0, 500)
    assert capsys.readouterr().err.splitlines()[-1] == "step 62/100  loss 1.0000  50 tokens/s  6:20 left"


def test_a_run_that_was_halted_soon_tells_its_speed_right_again(clock, capsys):
    """After a suspension of an hour, the speed is correct again five minutes later."""
    lines = LineReporter(None)
    lines.begin(0, 10_000)
    for step in range(1, 700):
        clock[0] += 3600 if step == 300 else 1
        lines.update(step, 10_000, 2.0, 1000)
    said = capsys.readouterr().err.splitlines()
    asleep = next(number for number, line in enumerate(said) if line.startswith("step 300/"))
    assert "  77 tokens/s" in said[asleep]  # of 300 steps, 290 of which took a second each
    assert said[-1].endswith("1,000 tokens/s  2:35:10 left")
