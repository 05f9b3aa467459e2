"""A person, or a system, that asks a run to stop is answered between two updates, when its state can be written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, a request to end, and a terminal that was closed (which Windows does not tell)."""


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, or the process was asked to end, while the block runs. The second time ends it."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread is told of signals
        return
    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
