"""The encoder protocol, and helpers shared by all encoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import numpy as np

from regard.data.example import Example
from regard.data.length_policy import LengthPolicy, TruncationStats, window_spans
from regard.data.ragged import RaggedArray
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import Tokenizer

ColumnTypes = Mapping[str, np.dtype[Any]]
INT32 = np.dtype(np.int32)
EXAMPLE_COLUMN = "example"
"""Column with the index of the example a row was encoded from. Filled by the corpus writer, which counts examples."""
IGNORE_INDEX = -100
"""Label of a token that the loss ignores, the default of torch's loss functions."""


@dataclass(frozen=True)
class EncodedExamples:
    """A group of encoded examples: rows by column, all columns with the same number of rows."""

    columns: Mapping[str, RaggedArray]
    truncation: TruncationStats
    example_indices: Sequence[int] = ()
    """Index within the group of the example of each row. Only for encoders with the column `example`."""


@runtime_checkable
class Encoder(Protocol):
    """Convert examples of one type to rows of numbers. Deterministic: equal examples give equal rows."""

    @property
    def example_type(self) -> type[Example]:
        """The example type that the encoder accepts."""

    @property
    def columns(self) -> ColumnTypes:
        """The columns of the rows, with their dtypes."""

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on besides the examples, as JSON-serializable values.

        Part of the cache key: keys and values must not change.
        """

    def encode(self, examples: Sequence[Any]) -> EncodedExamples:
        """Encode examples. May be called from several threads."""


def token_dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    """Return the smallest dtype for the ids of this vocabulary."""
    return np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.int32)


STORED_NAMES = {"Truncation": "Cut", "SlidingWindow": "Windowed", "StrictLength": "Refuse"}
"""Names of length policies in cache keys and training states: those of version 0.1. They must not change."""


def policy_to_json(policy: LengthPolicy | None) -> object:
    """Convert a length policy to JSON-serializable values, for the cache key."""
    return None if policy is None else [STORED_NAMES[type(policy).__name__], *vars(policy).values()]


@dataclass(frozen=True)
class SpecialTokenTemplate:
    """The special tokens that a tokenizer adds before and after a text."""

    prefix: list[int]
    suffix: list[int]

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> SpecialTokenTemplate:
        """Determine the template by encoding a short text: the first for which the tokenizer produces a token."""
        token_texts = (tokenizer.decode([token_id]) for token_id in range(len(tokenizer)))
        for text in chain("a1.", token_texts):
            encoding = tokenizer.encode(text)
            positions = [position for position, special in enumerate(encoding.special_tokens_mask) if not special]
            if positions:
                return cls(encoding.ids[: positions[0]], encoding.ids[positions[-1] + 1 :])
        raise ValueError("the tokenizer produces no tokens for any text")

    def with_eos(self, eos: int | None) -> SpecialTokenTemplate:
        """Return a template whose suffix contains EOS, if the vocabulary has one, so that EOS is part of the target."""
        return self if eos is None or eos in self.suffix else SpecialTokenTemplate(self.prefix, [*self.suffix, eos])


def iter_windows(
    examples: Sequence[Example], token_ids: Sequence[Sequence[int]], policy: LengthPolicy | None, overhead: int
) -> Iterator[tuple[int, int, int, TruncationStats]]:
    """Yield the example index, start and end of each row, and the truncation statistics it adds."""
    for index, (example, ids) in enumerate(zip(examples, token_ids, strict=True)):
        spans, stats = window_spans(policy, len(ids), overhead, example.file, example.line)
        for window, (start, end) in enumerate(spans):
            yield index, start, end, stats if window == 0 else TruncationStats()


def no_tokens_error(example: Example, part: str) -> DataError:
    """Return the error for a text without tokens, which a network cannot process."""
    return DataError(example.file, example.line, f"the {part} has no tokens: remove the line or add text")
