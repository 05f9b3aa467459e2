"""What a person sees while a network is trained: a bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from regard.training.run.run_dir import Folder

RECENT = 30
"""Speed and time left are those of so many lines, five minutes: a run that was halted soon tells them right again."""


@runtime_checkable
class Reporter(Protocol):
    """Is told what happens."""

    def begin(self, step: int, steps: int | None) -> None:
        """The run goes on after `step` of `steps`, or of as many as time allows."""

    def update(self, step: int, steps: int, loss: float, count: int) -> None:
        """An update is done, of so many that are expected: the loss of each token, and how many there were."""

    def evaluated(self, about: Mapping[str, Any], found: Mapping[str, float]) -> None:
        """The network was measured."""

    def say(self, line: str) -> None:
        """Something to be read."""

    def end(self) -> None:
        """The run is over, whatever ended it."""


class Mark(NamedTuple):
    """How far a run had come at a moment."""

    time: float
    step: int
    counted: int


class Lines:
    """Plain lines on standard error, and in the log; nothing more often than every ten seconds."""

    def __init__(self, folder: Folder | None, seconds: float = 10.0) -> None:
        self.folder, self.seconds = folder, seconds
        self.steps = 0
        self.marks: deque[Mark] = deque(maxlen=RECENT)

    def begin(self, step: int, steps: int | None) -> None:
        """Start the clock."""
        self.steps = steps or 0
        self.marks.clear()
        self.told = time.monotonic()
        self.loss = 0.0
        self.count = self.counted = 0
        self.say(f"training: step {step} of {'as many as time allows' if steps is None else steps}")

    def update(self, step: int, steps: int, loss: float, count: int) -> None:
        """Add up; say something if it is time to."""
        self._add(step, steps, loss, count)
        if time.monotonic() - self.told >= self.seconds:
            self.say(self.line(step))
            self._mark(step)

    def _add(self, step: int, steps: int, loss: float, count: int) -> None:
        self.steps = steps
        self.loss, self.count, self.counted = self.loss + loss * count, self.count + count, self.counted + count
        if not self.marks:  # the first update takes longer than others, and says nothing of them
            self.marks.append(Mark(time.monotonic(), step, self.counted))

    def _mark(self, step: int) -> None:
        """A line was said: begin the next one."""
        self.told, self.loss, self.count = time.monotonic(), 0.0, 0
        self.marks.append(Mark(self.told, step, self.counted))

    def line(self, step: int) -> str:
        """Where the run stands."""
        line = f"step {step}/{self.steps}  loss {self.loss / max(1, self.count):.4f}"
        if not self.marks or step == self.marks[0].step:
            return line
        since = self.marks[0]
        passed = max(time.monotonic() - since.time, 1e-9)
        left = clock(passed / (step - since.step) * (self.steps - step))
        return f"{line}  {(self.counted - since.counted) / passed:,.0f} tokens/s  {left} left"

    def evaluated(self, about: Mapping[str, Any], found: Mapping[str, float]) -> None:
        """What was measured, in a line."""
        measures = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
        mean = f" (mean of steps {', '.join(map(str, about['mean_of']))})" if "mean_of" in about else ""
        self.say(f"step {about['step']}{mean}, validation: {measures}")

    def say(self, line: str) -> None:
        """To standard error and to the log."""
        self.write(line)
        if self.folder is not None:
            self.folder.say(line)

    def write(self, line: str) -> None:
        """To standard error."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Nothing to put away."""


class Bar(Lines):
    """A bar at the bottom of the terminal; what is said scrolls by above it."""

    def begin(self, step: int, steps: int | None) -> None:
        """Draw the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.bar = Progress(BarColumn(), TextColumn("{task.description}"), console=self.console, transient=True)
        self.bar.start()
        self.task = self.bar.add_task("", total=steps, completed=step)
        super().begin(step, steps)

    def update(self, step: int, steps: int, loss: float, count: int) -> None:
        """Move the bar; the log gets a line now and then."""
        self._add(step, steps, loss, count)
        self.bar.update(self.task, completed=step, total=steps, description=self.line(step))
        if time.monotonic() - self.told >= self.seconds:
            if self.folder is not None:
                self.folder.say(self.line(step))
            self._mark(step)

    def write(self, line: str) -> None:
        """Above the bar."""
        self.console.print(line) if hasattr(self, "console") else super().write(line)

    def end(self) -> None:
        """Take the bar away."""
        self.bar.stop()


def reporter(folder: Folder | None) -> Lines:
    """A bar where a person is looking, lines where a file is."""
    return Bar(folder) if sys.stderr.isatty() else Lines(folder)


def clock(seconds: float) -> str:
    """A time as people write it: 1:02:03."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
