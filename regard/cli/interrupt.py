"""Ctrl-C: a command ends with exit code 130 at any moment.

The first second of a command is spent on imports. A KeyboardInterrupt that is raised inside an import may be swallowed
by the imported package (`except:` around an optional dependency) or leave it half imported, so there the process ends
at once. Everywhere else KeyboardInterrupt is raised as usual, so that files are closed and temporary files removed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

EXIT_INTERRUPTED = 130
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""The file name of Python's import system in stack frames."""


def handle_interrupts() -> None:
    """Handle Ctrl-C in this process, unless it is ignored (`nohup`, jobs in the background)."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number
    if not _is_importing(frame):
        raise KeyboardInterrupt
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os.write(2, b"interrupted\n")
    finally:
        os._exit(EXIT_INTERRUPTED)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False
