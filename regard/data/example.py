"""What a file holds, one record at a time: a typed record for each kind of data.

Every record knows where it came from, so that whatever is wrong with it later can be said with file and line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A record and its origin."""

    file: Path
    line: int
    """The line it begins on, counted from 1; for a record of a Python sequence, its number in the sequence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair(Example):
    """A text and what should become of it: translate, summarize."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain(Example):
    """Text alone, a document or a line: generate, fill."""

    text: str
    begins: bool = True
    """Whether a document begins here. A file that is one document, and large, comes in pieces."""
    ends: bool = True
    """Whether the document ends here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Labelled(Example):
    """A text, or two, and a label: classify. With a number in its place, how alike the two texts are: embed."""

    text: str
    pair: str | None = None
    label: str | float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tagged(Example):
    """Words and a tag for each: tag. Tags of entities are in the BIO scheme, whichever scheme the file had."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A part of a context."""

    text: str
    start: int
    """Where it begins in the context, in characters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question(Example):
    """A question about a context: answer. Without answers it cannot be answered from the context (SQuAD 2.0)."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    title: str = ""


TASKS: dict[str, type[Example]] = {
    "translate": Pair,
    "summarize": Pair,
    "generate": Plain,
    "fill": Plain,
    "classify": Labelled,
    "embed": Labelled,
    "tag": Tagged,
    "answer": Question,
}
"""The kind of example that a task learns from."""
