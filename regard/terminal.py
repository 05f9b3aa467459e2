"""What a terminal or a log shows: text is made harmless once, where it is printed.

Data, labels, names of files and tensors and keys of recipes come from files that may not have been checked. A control
character in them would move the cursor, change the title of the window or hide what was printed, and a line break could
forge a message of this library.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, TextIO

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Those of ASCII and Latin-1, except for tab and line feed."""


def escape_controls(text: str) -> str:
    """Write control characters as `\\x1b`; tabs and line feeds stay."""
    return CONTROL_CHARACTERS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def escape_line(text: str) -> str:
    """Write control characters and line feeds as escapes, so that the text takes one line."""
    return escape_controls(text.replace("\n", "\\n"))


def indent_message(text: str) -> str:
    """Indent all lines but the first: none of them can look like the start of another message."""
    first, *others = text.split("\n")
    return "\n".join([first, *(line if line.startswith(" ") else f"  {line}" for line in others)])


class TerminalStream:
    """Standard output or standard error of a command.

    Control characters are escaped if `escapes` is set. With `optional`, a reader that goes away is no error: whatever
    the command does, it goes on silently. Otherwise `reader_gone` is set and the error is raised.
    """

    def __init__(self, stream: TextIO, *, escapes: bool, optional: bool) -> None:
        self.stream, self.escapes, self.optional = stream, escapes, optional
        self.reader_gone = False

    def write(self, text: str) -> int:
        """Write a text."""
        try:
            self.stream.write(escape_controls(text) if self.escapes else text)
        except BrokenPipeError:
            self._discard()
            if not self.optional:
                raise
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self.stream.flush()
        except BrokenPipeError:
            self._discard()
            if not self.optional:
                raise

    def _discard(self) -> None:
        """Send what is buffered, and all that follows, to the null device."""
        self.reader_gone = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class ClosedStream:
    """Standard output that was closed before the command started: results would be lost."""

    def write(self, text: str) -> int:
        """Raise an error."""
        del text
        raise OSError("standard output is closed: the results have nowhere to go")

    def flush(self) -> None:
        """Nothing is buffered."""

    def isatty(self) -> bool:
        """No."""
        return False


def install_streams() -> None:
    """Replace the standard streams of this process by `TerminalStream`s. Closed ones are replaced too.

    What goes to a file or a pipe is unchanged: only a terminal interprets control characters. Messages are escaped
    wherever they go, since logs are shown in a terminal later.
    """
    reopen_closed_streams()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - it lives as long as the process
    if not isinstance(sys.stderr, TerminalStream):
        sys.stderr = TerminalStream(sys.stderr, escapes=True, optional=True)
    if sys.stdout is not None and not isinstance(sys.stdout, TerminalStream):
        escapes = sys.stdout.isatty()
        sys.stdout = TerminalStream(sys.stdout, escapes=escapes, optional=False)


def reopen_closed_streams() -> None:
    """Open the null device for each closed standard stream: otherwise the next file would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one


def unescaped(stream: Any) -> Any:
    """Return the stream under a `TerminalStream`, for a display that writes its own control characters."""
    return stream.stream if isinstance(stream, TerminalStream) else stream
