"""What a person sees while a network is trained: a bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from regard.training.folder import Folder


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


class Lines:
    """Plain lines on standard error, and in the log; nothing more often than every ten seconds."""

    def __init__(self, folder: Folder | None, seconds: float = 10.0) -> None:
        self.folder, self.seconds = folder, seconds
        self.steps = 0
        self.first: int | None = None
        """The first update since the clock was started."""

    def begin(self, step: int, steps: int | None) -> None:
        """Start the clock."""
        self.steps, self.first = steps or 0, None
        self.started = self.told = time.monotonic()
        self.loss = 0.0
        self.count = self.counted = 0
        self.say(f"training: step {step} of {'as many as time allows' if steps is None else steps}")

    def update(self, step: int, steps: int, loss: float, count: int) -> None:
        """Add up; say something if it is time to."""
        self._add(step, steps, loss, count)
        if time.monotonic() - self.told >= self.seconds:
            self.say(self.line(step))
            self.told, self.loss, self.count = time.monotonic(), 0.0, 0

    def _add(self, step: int, steps: int, loss: float, count: int) -> None:
        self.steps = steps
        self.loss, self.count, self.counted = self.loss + loss * count, self.count + count, self.counted + count
        if self.first is None:  # the first update takes longer than others, and says nothing of them
            self.started, self.first, self.counted = time.monotonic(), step, 0

    def line(self, step: int) -> str:
        """Where the run stands."""
        line = f"step {step}/{self.steps}  loss {self.loss / max(1, self.count):.4f}"
        if self.first is None or step == self.first:
            return line
        passed = time.monotonic() - self.started
        left = clock(passed / (step - self.first) * (self.steps - step))
        return f"{line}  {self.counted / max(passed, 1e-9):,.0f} tokens/s  {left} left"

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

        self.console = Console(stderr=True, highlight=False, markup=False)
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
            self.told, self.loss, self.count = time.monotonic(), 0.0, 0

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
