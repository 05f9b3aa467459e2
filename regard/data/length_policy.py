"""What becomes of input that is too long: windows, a cut that is counted, or an error. Never silence.

tokens            0 1 2 3 4 5 6 7 8 9
Windowed(4, 3)    0 1 2 3
                        3 4 5 6
                              6 7 8 9
Cut(4)            0 1 2 3                 6 tokens were cut away, and the report says so
Refuse(4)         an error that names the file and the line
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.tokenization.text_files import DataError


@dataclass(frozen=True)
class Windowed:
    """Several rows of at most `length` tokens, each beginning `stride` tokens after the one before."""

    length: int
    stride: int

    def __post_init__(self) -> None:
        _check(self.length)
        if not 1 <= self.stride <= self.length:
            raise ValueError(
                f"stride {self.stride} with windows of {self.length}: a stride from 1 to the length leaves no gaps"
            )


@dataclass(frozen=True)
class Cut:
    """The first `length` tokens; how many were cut away is counted."""

    length: int

    def __post_init__(self) -> None:
        _check(self.length)


@dataclass(frozen=True)
class Refuse:
    """An error where a row has more than `length` tokens."""

    length: int

    def __post_init__(self) -> None:
        _check(self.length)


Long = Windowed | Cut | Refuse


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """How much was too long, and what became of it."""

    examples: int = 0
    """Examples that were longer than allowed."""
    tokens: int = 0
    """Tokens that were cut away."""
    windows: int = 0
    """Rows that the long examples became where they were windowed."""

    def __add__(self, other: Cuts) -> Cuts:
        return Cuts(
            examples=self.examples + other.examples,
            tokens=self.tokens + other.tokens,
            windows=self.windows + other.windows,
        )

    def __str__(self) -> str:
        if not self.examples:
            return "nothing was too long"
        became = (
            f"{self.tokens:,} tokens of them were cut away" if self.tokens else f"they became {self.windows:,} rows"
        )
        return f"{self.examples:,} examples were too long: {became}"


def spans(rule: Long | None, count: int, around: int, file: Path, line: int) -> tuple[list[tuple[int, int]], Cuts]:
    """The parts of `count` tokens that become rows, and what was cut.

    `around` is how many tokens stand in each row besides (special tokens, a question): the rule's lengths include them.
    """
    if rule is None or count + around <= rule.length:
        return [(0, count)], Cuts()
    room = rule.length - around
    if isinstance(rule, Refuse) or room < 1:
        raise DataError(file, line, _too_long(rule, count, around))
    if isinstance(rule, Cut):
        return [(0, room)], Cuts(examples=1, tokens=count - room)
    stride = min(rule.stride, room)
    begins = range(0, count - room + stride, stride)
    return [(begin, min(begin + room, count)) for begin in begins], Cuts(examples=1, windows=len(begins))


def _too_long(rule: Long, count: int, around: int) -> str:
    said = f"{count + around} tokens, and at most {rule.length} are allowed"
    if isinstance(rule, Refuse):
        return f"{said}. Shorten it, allow more, or say what to do with long ones: Cut({rule.length}), or Windowed(...)"
    return f"{said}, of which {around} are needed in every row, so none is left for the text. Allow more"


def _check(length: int) -> None:
    if length < 1:
        raise ValueError(f"a length of {length} tokens: it must be at least 1")
