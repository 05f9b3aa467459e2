"""A progress spinner on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Spinner:
    """Shows the current step of a task with a spinner and a line count, only if stderr is a terminal."""

    UPDATE_EVERY = 10_000

    def __init__(self, enabled: bool) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._count = 0
        if enabled:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            console = Console(stderr=True)
            if console.is_terminal:
                columns = TextColumn("{task.description}"), TextColumn("{task.fields[lines]}")
                self._bar = Progress(SpinnerColumn(), *columns, TimeElapsedColumn(), console=console)

    @contextmanager
    def step(self, description: str) -> Iterator[None]:
        """Show this description while the context is active."""
        if self._bar is None:
            yield
            return
        with self._bar:
            self._task = self._bar.add_task(description, lines="")
            yield
            self._bar.update(self._task, total=1, completed=1)
        self._task = None

    def advance(self) -> None:
        """Count one more line; the display is updated every `UPDATE_EVERY` lines."""
        self._count += 1
        if self._task is not None and self._count % self.UPDATE_EVERY == 0:
            self._bar.update(self._task, lines=f"{self._count:,} lines")
