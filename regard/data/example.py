"""Examples: one typed record for each kind of data.

Every example stores its file and line, so that any later error message can name them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """Base class: the origin of a record."""

    file: Path
    line: int
    """The line on which the record starts, counted from 1; for an element of a Python sequence, its number, from 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair(Example):
    """A source text and its target text. Tasks: translate, summarize."""

    source: str
    target: str
    references: tuple[str, ...] = ()
    """Further correct targets, for evaluation; the target counts too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document(Example):
    """Plain text: a document, or a line. Tasks: generate, fill."""

    text: str
    starts_document: bool = True
    """Whether this is the start of a document. A large file that is one document is read in several chunks."""
    ends_document: bool = True
    """Whether this is the end of the document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledText(Example):
    """A text, or a pair of texts, with a class label (task classify) or a similarity score (task embed)."""

    text: str
    pair: str | None = None
    label: str | float


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedSentence(Example):
    """Words with one tag each. Task: tag. Entity tags are in the BIO scheme, whichever scheme the file has."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A span of a context that answers a question."""

    text: str
    start: int
    """Character offset in the context; `FREE_ANSWER` for an answer in other words than the context."""


FREE_ANSWER = -1
"""The start of an answer that is no part of the context, or whose place is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question(Example):
    """A question about a context. Task: answer. No answers: the context does not contain one (SQuAD 2.0)."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionedImage(Example):
    """An image with one or several sentences about it. Task: caption."""

    image: Path
    captions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageText(Example):
    """An image with a text: its label or a caption. Tasks: classify, embed."""

    image: Path
    text: str


EXAMPLE_TYPES: dict[str, type[Example]] = {
    "translate": Pair,
    "summarize": Pair,
    "generate": Document,
    "fill": Document,
    "classify": LabeledText,
    "embed": LabeledText,
    "tag": TaggedSentence,
    "answer": Question,
}
"""The example type of each task."""
