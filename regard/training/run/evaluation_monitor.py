"""Progress and time of an evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

ItemT = TypeVar("ItemT")
TRIAL_SHARE, TRIAL_MINIMUM = 16, 16
"""A trial computes one item of 16, but at least 16."""


class EvaluationTimeoutError(Exception):
    """The time limit of an evaluation has passed. `EvaluationMonitor.stage` handles it."""


class EvaluationMonitor:
    """Shows how far an evaluation is, ends it at a deadline, and estimates its duration from a part of it.

        with monitor.stage("bleu"):
            for result in monitor.track(results, len(texts)): ...

    After a deadline the stages are left without their metrics, and `timed_out` is true.
    """

    def __init__(self, report: Callable[[str, int, int], None] = lambda *_: None) -> None:
        self.report = report
        self.begin()

    def begin(self, *, deadline: float | None = None, trial: bool = False) -> None:
        """Start an evaluation. It ends at `deadline` (`time.monotonic`). A trial computes a part of the items."""
        self.deadline, self.trial = deadline, trial
        self.timed_out = False
        self.seconds = 0.0
        """How long the stages took; of a trial: how long all items would take."""
        self._name, self._scale = "", 1.0

    def select(self, items: Sequence[ItemT]) -> Sequence[ItemT]:
        """Return the items to compute: all, or the first ones in a trial."""
        count = min(len(items), max(TRIAL_MINIMUM, len(items) // TRIAL_SHARE)) if self.trial else len(items)
        self._scale = len(items) / max(1, count)
        return items[:count]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a part of the evaluation, and leave it at the deadline."""
        self._name, self._scale = name, 1.0
        start = time.monotonic()
        try:
            self._check_deadline()
            yield
        except EvaluationTimeoutError:
            self.timed_out = True
        self.seconds += (time.monotonic() - start) * self._scale

    def track(self, items: Iterable[ItemT], total: int) -> Iterator[ItemT]:
        """Yield the items, and report how many are done."""
        for number, item in enumerate(items, 1):
            self.report(self._name, number, total)
            yield item
            self._check_deadline()

    def _check_deadline(self) -> None:
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise EvaluationTimeoutError
