"""What commands write to standard error besides errors: notes, and the progress display."""

from __future__ import annotations

import enum
import sys
from typing import Any

from regard.terminal import escape_controls, indent_message, unescaped


class Verbosity(enum.IntEnum):
    """How much is written to standard error besides errors."""

    QUIET = 0
    """Nothing."""
    NORMAL = 1
    """Notes and progress."""
    VERBOSE = 2
    """Details too."""


_verbosity = Verbosity.NORMAL


def set_verbosity(verbosity: Verbosity) -> None:
    """Set how much is written from now on."""
    global _verbosity  # noqa: PLW0603 (one setting of the process)
    _verbosity = verbosity


def is_quiet() -> bool:
    """Whether only errors are written."""
    return _verbosity is Verbosity.QUIET


def write_note(text: str) -> None:
    """Write a message to standard error, unless notes are turned off. Control characters in it are escaped."""
    if not is_quiet() and sys.stderr is not None:
        sys.stderr.write(escape_controls(indent_message(text)) + "\n")
        sys.stderr.flush()


def write_detail(text: str) -> None:
    """Write a line to standard error if details are wanted."""
    if _verbosity is Verbosity.VERBOSE:
        write_note(text)


class Progress:
    """A progress bar on standard error, with a spinner; without a total, the spinner alone moves.

        with Progress("reading", total=len(lines)) as progress:
            for line in lines:
                progress.advance()

    `time_left` shows an estimate of the time that is left. The bar disappears at the end. If standard error is not a
    terminal, nothing is shown. Standard output is left alone, so that results can go to a file meanwhile.
    """

    def __init__(
        self, description: str = "", total: int | None = None, completed: int = 0, *, time_left: bool = True
    ) -> None:
        self._display: Any = _make_display(time_left) if on_terminal() else None
        if self._display is not None:
            self._task = self._display.add_task(description, total=total, completed=completed)

    def __enter__(self) -> Progress:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Show the display."""
        if self._display is not None:
            self._display.start()

    def stop(self) -> None:
        """Remove the display."""
        if self._display is not None:
            self._display.stop()

    def advance(self, count: int = 1) -> None:
        """Add to the completed amount."""
        if self._display is not None:
            self._display.advance(self._task, count)

    def update(self, completed: int, total: int, description: str) -> None:
        """Set all values."""
        if self._display is not None:
            self._display.update(self._task, completed=completed, total=total, description=escape_controls(description))

    def print(self, line: str) -> None:
        """Print a line on standard error, above the bar if there is one."""
        if self._display is None:
            write_note(line)
        else:
            self._display.console.print(escape_controls(line), soft_wrap=True)


def on_terminal() -> bool:
    """Return whether progress is shown: standard error is a terminal, and the command is not quiet."""
    return sys.stderr is not None and sys.stderr.isatty() and not is_quiet()


def _make_display(time_left: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    columns = (
        SpinnerColumn(),
        BarColumn(),
        TaskProgressColumn(),
        *([TimeRemainingColumn()] if time_left else []),
        TextColumn("{task.description}", markup=False),
    )
    console = Console(file=unescaped(sys.stderr), stderr=True, highlight=False, markup=False, emoji=False)
    # rich would send standard output to the console of the display, which is standard error.
    return Display(*columns, console=console, transient=True, redirect_stdout=False)
