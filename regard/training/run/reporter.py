"""Reports of a run: a progress bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from regard.progress import Progress, on_terminal, write_note
from regard.terminal import escape_line
from regard.training.run.run_dir import RunDir

SPEED_WINDOW = 30
"""Speed and remaining time are averages over this many lines (five minutes), so they recover after a suspension."""


@runtime_checkable
class Reporter(Protocol):
    """Receives the events of a run."""

    def begin(self, step: int, steps: int | None, minutes: float | None = None) -> None:
        """The run starts after `step` of at most `steps`, for at most `minutes`."""

    def update(
        self,
        step: int,
        steps: int,
        loss: float,
        count: int,
        *,
        tokens: int | None = None,
        seconds_left: float | None = None,
    ) -> None:
        """An optimizer step is done: its number, the expected total, the mean loss and the number of its terms.

        `tokens` is the number of tokens in the step (default: `count`), `seconds_left` the time that is left if the
        run is limited by time.
        """

    def show_evaluation(self, name: str, done: int, total: int) -> None:
        """A part of an evaluation is computing: its name, and how much is done."""

    def log_evaluation(self, info: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """The network was evaluated."""

    def log(self, line: str) -> None:
        """Show a line, and write it to the log."""

    def end(self) -> None:
        """The run has ended, also after an error."""


class ProgressMark(NamedTuple):
    """Step and number of tokens at a point in time."""

    time: float
    step: int
    tokens: int


class LineReporter:
    """Writes lines to standard error and to the log, a status line at most every ten seconds."""

    def __init__(self, run_dir: RunDir | None, seconds: float = 10.0) -> None:
        self.run_dir, self.seconds = run_dir, seconds
        self.steps = 0
        self.seconds_left: float | None = None
        self.last_report_time = time.monotonic()
        self.marks: deque[ProgressMark] = deque(maxlen=SPEED_WINDOW)

    def begin(self, step: int, steps: int | None, minutes: float | None = None) -> None:
        """Reset the counters, and log the first line."""
        self.steps = steps or 0
        self.marks.clear()
        self.last_report_time = time.monotonic()
        self.loss = 0.0
        self.count = self.tokens = 0
        of_steps = "" if steps is None else f" of {'' if minutes is None else 'at most '}{steps}"
        for_minutes = "" if minutes is None else f", for {'' if steps is None else 'at most '}{minutes:g} minutes"
        self.log(f"training: step {step}{of_steps}{for_minutes}")

    def update(
        self,
        step: int,
        steps: int,
        loss: float,
        count: int,
        *,
        tokens: int | None = None,
        seconds_left: float | None = None,
    ) -> None:
        """Accumulate the loss, and log a status line if it is due."""
        self._accumulate(step, steps, loss, count, count if tokens is None else tokens, seconds_left)
        if time.monotonic() - self.last_report_time >= self.seconds:
            self.log(self.status_line(step))
            self._start_interval(step)

    def _accumulate(
        self, step: int, steps: int, loss: float, count: int, tokens: int, seconds_left: float | None
    ) -> None:
        self.steps, self.seconds_left = steps, seconds_left
        self.loss, self.count, self.tokens = self.loss + loss * count, self.count + count, self.tokens + tokens
        if not self.marks:  # the first step is slower than the others, so it is not measured
            self.marks.append(ProgressMark(time.monotonic(), step, self.tokens))

    def _start_interval(self, step: int) -> None:
        """Reset the averages after a status line."""
        self.last_report_time, self.loss, self.count = time.monotonic(), 0.0, 0
        self.marks.append(ProgressMark(self.last_report_time, step, self.tokens))

    def status_line(self, step: int) -> str:
        """Return step, loss, speed and remaining time."""
        remaining = self._estimate_seconds_left(step)
        return self.status(step) + ("" if remaining is None else f"  {format_duration(remaining)} left")

    def _estimate_seconds_left(self, step: int) -> float | None:
        if self.seconds_left is not None or not self.marks or step == self.marks[0].step:
            return self.seconds_left
        start = self.marks[0]
        return (time.monotonic() - start.time) / (step - start.step) * (self.steps - step)

    def status(self, step: int) -> str:
        """Return step, loss and speed."""
        total = (
            f"/{self.steps}" if self.seconds_left is None else "" if step >= self.steps else f" of about {self.steps}"
        )
        line = f"step {step}{total}  loss {self.loss / max(1, self.count):.4f}"
        if not self.marks or step == self.marks[0].step:
            return line
        elapsed = max(time.monotonic() - self.marks[0].time, 1e-9)
        return f"{line}  {(self.tokens - self.marks[0].tokens) / elapsed:,.0f} tokens/s"

    def log_evaluation(self, info: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Log all metrics in one line."""
        values = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        steps = info.get("averaged_steps")
        average = f" (average of steps {', '.join(map(str, steps))})" if steps is not None else ""
        self.log(f"step {info['step']}{average}, validation: {values}")

    def show_evaluation(self, name: str, done: int, total: int) -> None:
        """Log a status line if it is due."""
        if time.monotonic() - self.last_report_time >= self.seconds:
            self.last_report_time = time.monotonic()
            self.log(f"evaluating: {name}, {done} of {total}")

    def log(self, line: str) -> None:
        """Write a line to standard error and to the log. It may contain texts of the data: control characters are
        escaped."""
        line = escape_line(line)
        self.print_line(line)
        if self.run_dir is not None:
            self.run_dir.log(line)

    def print_line(self, line: str) -> None:
        """Write a line to standard error."""
        write_note(line)

    def end(self) -> None:
        """Nothing to clean up."""


class ProgressBarReporter(LineReporter):
    """A progress bar at the bottom of the terminal; log lines scroll above it."""

    bar: Progress | None = None

    def begin(self, step: int, steps: int | None, minutes: float | None = None) -> None:
        """Start the progress bar."""
        self.bar = Progress(total=steps, completed=step, time_left=False)
        self.bar.start()
        super().begin(step, steps, minutes)

    def show_evaluation(self, name: str, done: int, total: int) -> None:
        """Show the progress of the evaluation in the bar."""
        if self.bar is None:  # after the last step: an average of checkpoints
            self.bar = Progress(time_left=False)
            self.bar.start()
        self.bar.update(done, total, f"evaluating: {name}, {done} of {total}")

    def update(
        self,
        step: int,
        steps: int,
        loss: float,
        count: int,
        *,
        tokens: int | None = None,
        seconds_left: float | None = None,
    ) -> None:
        """Advance the bar, and write a status line to the log if it is due."""
        self._accumulate(step, steps, loss, count, count if tokens is None else tokens, seconds_left)
        if self.bar is not None:
            self.bar.update(step, steps, self.status_line(step))
        if time.monotonic() - self.last_report_time >= self.seconds:
            if self.run_dir is not None:
                self.run_dir.log(self.status_line(step))
            self._start_interval(step)

    def print_line(self, line: str) -> None:
        """Print a line above the bar."""
        super().print_line(line) if self.bar is None else self.bar.print(line)

    def end(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def make_reporter(run_dir: RunDir | None) -> LineReporter:
    """Return a progress bar on a terminal, plain lines otherwise."""
    return ProgressBarReporter(run_dir) if on_terminal() else LineReporter(run_dir)


def format_duration(seconds: float) -> str:
    """Format a duration as 1:02:03."""
    total = round(seconds)
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes}:{total % 60:02d}"
