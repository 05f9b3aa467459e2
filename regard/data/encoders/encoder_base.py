"""What all encoders have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import numpy as np

from regard.data.example import Example
from regard.data.length_policy import Cuts, Long, spans
from regard.data.ragged import Ragged
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import Tokenizer

Columns = Mapping[str, np.dtype[Any]]
INTEGER = np.dtype(np.int32)
ORIGIN = "example"
"""The column that says which example of the corpus a row is of. The writer fills it, as it alone knows the number."""
IGNORED = -100
"""The label of a token that is not to be learnt, as torch's loss functions have it."""


@dataclass(frozen=True)
class Chunk:
    """A few thousand examples as numbers: rows by column, all columns with the same number of rows."""

    columns: Mapping[str, Ragged]
    cuts: Cuts
    origin: Sequence[int] = ()
    """Which of these examples each row is of, where an encoder has the column `example`."""


@runtime_checkable
class Encoder(Protocol):
    """Turns examples of one kind into rows of numbers. The same examples always give the same rows."""

    @property
    def kind(self) -> type[Example]:
        """The kind of example that it takes."""

    @property
    def columns(self) -> Columns:
        """The columns that it makes, and the type of their numbers."""

    def fingerprint(self) -> Mapping[str, object]:
        """Everything that the numbers depend on besides the examples, in a form that JSON can hold."""

    def encode(self, examples: Sequence[Any]) -> Chunk:
        """Examples as rows. May be called from several threads."""


def ids_type(tokenizer: Tokenizer) -> np.dtype[Any]:
    """The smallest type of number for this vocabulary's ids."""
    return np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.int32)


def describe(rule: Long | None) -> object:
    """A rule in a form that JSON can hold."""
    return None if rule is None else [type(rule).__name__, *vars(rule).values()]


@dataclass(frozen=True)
class Frame:
    """The special tokens that a tokenizer puts before and after a text."""

    before: list[int]
    after: list[int]

    def __len__(self) -> int:
        return len(self.before) + len(self.after)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Frame:
        """Found out by asking, with the first text of which the tokenizer makes a token."""
        letters = (tokenizer.decode([number]) for number in range(len(tokenizer)))
        for text in chain("a1.", letters):
            framed = tokenizer.encode(text)
            places = [place for place, special in enumerate(framed.special) if not special]
            if places:
                return cls(framed.ids[: places[0]], framed.ids[places[-1] + 1 :])
        raise ValueError("this tokenizer makes no token of any text")

    def with_end(self, end: int | None) -> Frame:
        """The same with the end token, where there is one and it is missing: the end must be there to be learnt."""
        return self if end is None or end in self.after else Frame(self.before, [*self.after, end])


def in_windows(
    examples: Sequence[Example], rows: Sequence[Sequence[int]], rule: Long | None, around: int
) -> Iterator[tuple[int, int, int, Cuts]]:
    """Number, begin and end of each row to be made, and what was cut for it."""
    for number, (example, row) in enumerate(zip(examples, rows, strict=True)):
        parts, cuts = spans(rule, len(row), around, example.file, example.line)
        for place, (begin, end) in enumerate(parts):
            yield number, begin, end, cuts if place == 0 else Cuts()


def nothing_left(example: Example, what: str) -> DataError:
    """Said of a text that has no token, of which a network cannot make anything."""
    return DataError(example.file, example.line, f"the {what} has no token: remove the line, or write something there")
