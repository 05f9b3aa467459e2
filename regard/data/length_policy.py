"""Policies for input longer than max_length: overlapping windows, counted truncation, or an error. Nothing is silent.

tokens                0 1 2 3 4 5 6 7 8 9
SlidingWindow(4, 3)   0 1 2 3
                            3 4 5 6
                                  6 7 8 9
Truncation(4)         0 1 2 3                 6 tokens are truncated, and the corpus summary reports them
StrictLength(4)       an error with file and line
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.tokenization.text_files import DataError


@dataclass(frozen=True)
class SlidingWindow:
    """Split into windows of at most `max_length` tokens, each starting `stride` tokens after the previous one."""

    max_length: int
    stride: int

    def __post_init__(self) -> None:
        _check_max_length(self.max_length)
        if not 1 <= self.stride <= self.max_length:
            raise ValueError(
                f"stride must be between 1 and max_length={self.max_length}, got {self.stride} "
                "(a larger stride would skip tokens)"
            )

    def spans(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return start and end of the windows of `num_tokens` tokens."""
        starts = range(0, max(num_tokens - self.max_length, 0) + self.stride, self.stride)
        return [(start, min(start + self.max_length, num_tokens)) for start in starts]


@dataclass(frozen=True)
class Truncation:
    """Keep the first `max_length` tokens. The number of truncated tokens is counted."""

    max_length: int

    def __post_init__(self) -> None:
        _check_max_length(self.max_length)


@dataclass(frozen=True)
class StrictLength:
    """Raise an error for a row of more than `max_length` tokens."""

    max_length: int

    def __post_init__(self) -> None:
        _check_max_length(self.max_length)


LengthPolicy = SlidingWindow | Truncation | StrictLength


@dataclass(frozen=True, kw_only=True)
class TruncationStats:
    """Number of examples that exceeded max_length, and how they were handled. The fields are keys in `corpus.json`."""

    examples: int = 0
    """Examples longer than max_length."""
    tokens: int = 0
    """Truncated tokens."""
    windows: int = 0
    """Windows into which long examples were split."""

    def __add__(self, other: TruncationStats) -> TruncationStats:
        return TruncationStats(
            examples=self.examples + other.examples,
            tokens=self.tokens + other.tokens,
            windows=self.windows + other.windows,
        )

    def __str__(self) -> str:
        if not self.examples:
            return "no example exceeded max_length"
        outcome = f"{self.tokens:,} tokens truncated" if self.tokens else f"split into {self.windows:,} windows"
        return f"{self.examples:,} examples exceeded max_length: {outcome}"


def window_spans(
    policy: LengthPolicy | None, num_tokens: int, overhead: int, file: Path, line: int
) -> tuple[list[tuple[int, int]], TruncationStats]:
    """Return the spans of `num_tokens` tokens that become rows, and the truncation statistics.

    `overhead` is the number of further tokens in each row (special tokens, a question); max_length includes them.
    """
    if policy is None or num_tokens + overhead <= policy.max_length:
        return [(0, num_tokens)], TruncationStats()
    capacity = policy.max_length - overhead
    if isinstance(policy, StrictLength) or capacity < 1:
        raise DataError(file, line, _too_long_message(policy, num_tokens, overhead))
    if isinstance(policy, Truncation):
        return [(0, capacity)], TruncationStats(examples=1, tokens=num_tokens - capacity)
    spans = SlidingWindow(capacity, min(policy.stride, capacity)).spans(num_tokens)
    return spans, TruncationStats(examples=1, windows=len(spans))


def _too_long_message(policy: LengthPolicy, num_tokens: int, overhead: int) -> str:
    message = f"{num_tokens + overhead} tokens exceed max_length={policy.max_length}"
    if isinstance(policy, StrictLength):
        hint = f"use Truncation({policy.max_length}) or SlidingWindow(...)"
        return f"{message}. Shorten the text, raise max_length, or {hint}"
    overhead_message = f"special tokens and question take {overhead} tokens, leaving none for the text"
    return f"{message}: {overhead_message}. Raise max_length"


def _check_max_length(max_length: int) -> None:
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}")
