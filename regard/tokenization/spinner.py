"""What is being done, on standard error, for whoever watches a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Steps:
    """Steps of some work, one after another, each with a line that moves while it lasts. Nothing where nobody looks."""

    EVERY = 10_000

    def __init__(self, shown: bool) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._count = 0
        if shown:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            console = Console(stderr=True)
            if console.is_terminal:
                said = TextColumn("{task.description}"), TextColumn("{task.fields[lines]}")
                self._bar = Progress(SpinnerColumn(), *said, TimeElapsedColumn(), console=console)

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """One step."""
        if self._bar is None:
            yield
            return
        with self._bar:
            self._task = self._bar.add_task(what, lines="")
            yield
            self._bar.update(self._task, total=1, completed=1)
        self._task = None

    def advance(self) -> None:
        """One more line was read."""
        self._count += 1
        if self._task is not None and self._count % self.EVERY == 0:
            self._bar.update(self._task, lines=f"{self._count:,} lines")
