"""Handle SIGINT, SIGTERM and SIGHUP between two optimizer steps, when a checkpoint can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, termination, and a closed terminal (which Windows does not signal)."""


@contextmanager
def catch_stop_signals() -> Iterator[Callable[[], bool]]:
    """Catch stop signals inside the block. Yields a function that returns whether one arrived.

    A second signal raises KeyboardInterrupt at once.
    """
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if received:
            raise KeyboardInterrupt
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread receives signals
        return
    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
