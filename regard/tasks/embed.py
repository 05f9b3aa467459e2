"""embed: a vector for a text. Its data can be checked; training and using it follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.example import LabeledText
from regard.tasks.inputs import TEXT
from regard.training.task import Task
from regard.transformer.interface import Predicts, Reads


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """Options of embedding."""

    normalize: bool = False
    """Scale each vector to length 1, so that a dot product is a cosine."""


@dataclass(frozen=True, kw_only=True)
class TextVector:
    """The vector of one text."""

    vector: tuple[float, ...]
    truncated: int = 0
    """Number of tokens that were removed because the text was too long for the network."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {"vector": [*self.vector], "truncated": self.truncated}

    def as_lines(self) -> Sequence[str]:
        """Return the numbers, separated by spaces."""
        return [" ".join(map(str, self.vector))]


EMBED = Task(
    name="embed",
    summary="Print a vector for TEXT: one output line per input line, in order.",
    input=TEXT,
    options=EmbedOptions,
    result=TextVector,
    example=LabeledText,
    reads=frozenset({Reads.TOKENS, Reads.TEXT_AND_IMAGE}),
    predicts=frozenset({Predicts.VECTORS, Predicts.SIMILARITY}),
    architectures=("Model",),
)
