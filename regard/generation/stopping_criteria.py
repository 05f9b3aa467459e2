"""Stop conditions: when is a row finished, and why.

A condition is a function of a row that says why it is finished, or None while it is not. That a row has reached its
limit is always looked at, and needs no condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from regard.generation.sequence import Row


class Stopped(Enum):
    """Why a text ends where it ends."""

    END = "end"
    """The network wrote its end token."""
    LENGTH = "length"
    """The limit was reached."""
    TEXT = "text"
    """A text that was to stop it was written."""
    REPEAT = "repeat"
    """The network wrote the same again and again."""
    STUCK = "stuck"
    """The rules left no token to write."""


Stop = Callable[[Row], Stopped | None]


@dataclass(frozen=True)
class End:
    """One of these tokens was written."""

    tokens: Sequence[int]

    def __call__(self, row: Row) -> Stopped | None:
        """Look at the last token."""
        return Stopped.END if row.last in self.tokens and row.length else None


@dataclass(frozen=True)
class Text:
    """One of these texts was written. `decode` makes a text of tokens."""

    texts: Sequence[str]
    decode: Callable[[Sequence[int]], str]

    def __post_init__(self) -> None:
        if not all(self.texts):
            raise ValueError("a text that stops needs at least one character")

    def __call__(self, row: Row) -> Stopped | None:
        """Look for the texts in all that was written: a token may end in the middle of one."""
        written = self.decode(row.written)
        return Stopped.TEXT if any(text in written for text in self.texts) else None


@dataclass(frozen=True)
class Repeat:
    """The last tokens, up to `size` of them, were written `times` times in a row."""

    size: int = 8
    times: int = 4

    def __post_init__(self) -> None:
        if self.size < 1 or self.times < 2:
            raise ValueError(f"a loop is one token or more, twice or more often, found {self.size}, {self.times} times")

    def __call__(self, row: Row) -> Stopped | None:
        """Compare what was written with itself, moved by each size of loop."""
        written = row.end(self.size * self.times)
        for size in range(1, min(self.size, len(written) // self.times) + 1):
            tail = written[len(written) - size * self.times :]
            if tail[size:] == tail[:-size]:
                return Stopped.REPEAT
        return None


def at_limit(row: Row) -> Stopped | None:
    """There is no room for another token."""
    return Stopped.LENGTH if row.length >= row.limit else None


def first(conditions: Sequence[Stop]) -> Stop:
    """The first of these conditions that holds."""

    def stop(row: Row) -> Stopped | None:
        for condition in conditions:  # a loop in many words: it is asked of each row at each step
            if (reason := condition(row)) is not None:
                return reason
        return None

    match conditions:
        case [End() as end, limit] if type(end) is End and limit is at_limit:
            return _end_or_limit(frozenset(end.tokens))
        case _:
            return stop


def _end_or_limit(ends: frozenset[int]) -> Stop:
    """What most texts end by, in one call."""

    def stop(row: Row) -> Stopped | None:
        if row.last in ends and row.length:
            return Stopped.END
        return Stopped.LENGTH if row.length >= row.limit else None

    return stop
