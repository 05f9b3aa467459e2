"""Stopping criteria: when a sequence is finished, and why.

A criterion is a function of a sequence that returns the reason to stop, or None while the sequence continues. The
maximum length is always checked and needs no criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from regard.generation.sequence import TokenSequence


class StopReason(Enum):
    """Why generation stopped."""

    END = "end"
    """The network generated an EOS token."""
    LENGTH = "length"
    """`max_new_tokens` was reached."""
    TEXT = "text"
    """A stop string was generated."""
    REPEAT = "repeat"
    """The output repeats itself."""
    NO_TOKEN = "no_token"
    """The logits processors masked every token."""


StoppingCriterion = Callable[[TokenSequence], StopReason | None]


@dataclass(frozen=True)
class EosToken:
    """Stop when one of these tokens is generated."""

    token_ids: Sequence[int]

    def __call__(self, sequence: TokenSequence) -> StopReason | None:
        """Check the last token."""
        return StopReason.END if sequence.last_token in self.token_ids and sequence.num_new_tokens else None


@dataclass(frozen=True)
class StopString:
    """Stop when the new text contains one of these strings. `decode` converts tokens to text."""

    strings: Sequence[str]
    decode: Callable[[Sequence[int]], str]

    def __post_init__(self) -> None:
        if not all(self.strings):
            raise ValueError("a stop string must have at least one character")

    def __call__(self, sequence: TokenSequence) -> StopReason | None:
        """Search the whole new text, because a stop string may begin or end inside a token."""
        text = self.decode(sequence.new_tokens)
        return StopReason.TEXT if any(string in text for string in self.strings) else None


@dataclass(frozen=True)
class Repetition:
    """Stop when the output ends with an n-gram of at most `max_ngram_size` tokens, `repeats` times in a row."""

    max_ngram_size: int = 8
    repeats: int = 4

    def __post_init__(self) -> None:
        if self.max_ngram_size < 1 or self.repeats < 2:
            raise ValueError(
                "max_ngram_size must be at least 1 and repeats at least 2, "
                f"found {self.max_ngram_size} and {self.repeats}"
            )

    def __call__(self, sequence: TokenSequence) -> StopReason | None:
        """For each n-gram size, compare the last tokens with themselves, shifted by that size."""
        tokens = sequence.last_new_tokens(self.max_ngram_size * self.repeats)
        for size in range(1, min(self.max_ngram_size, len(tokens) // self.repeats) + 1):
            tail = tokens[len(tokens) - size * self.repeats :]
            if tail[size:] == tail[:-size]:
                return StopReason.REPEAT
        return None


def reached_max_new_tokens(sequence: TokenSequence) -> StopReason | None:
    """Stop at `max_new_tokens`."""
    return StopReason.LENGTH if sequence.num_new_tokens >= sequence.max_new_tokens else None


def combine_criteria(criteria: Sequence[StoppingCriterion]) -> StoppingCriterion:
    """Return a criterion that stops with the reason of the first criterion that holds."""

    def stop(sequence: TokenSequence) -> StopReason | None:
        for criterion in criteria:  # a plain loop, for speed: it runs for each sequence at each step
            if (reason := criterion(sequence)) is not None:
                return reason
        return None

    match criteria:
        case [EosToken() as eos, length] if type(eos) is EosToken and length is reached_max_new_tokens:
            return _eos_or_length(frozenset(eos.token_ids))
        case _:
            return stop


def _eos_or_length(eos_token_ids: frozenset[int]) -> StoppingCriterion:
    """Return a fast path for the most common criteria: EOS tokens and maximum length in one call."""

    def stop(sequence: TokenSequence) -> StopReason | None:
        if sequence.last_token in eos_token_ids and sequence.num_new_tokens:
            return StopReason.END
        return StopReason.LENGTH if sequence.num_new_tokens >= sequence.max_new_tokens else None

    return stop
