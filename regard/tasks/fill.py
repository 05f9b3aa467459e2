"""fill: the words that a mask stands for, with an encoder. It can be trained; using it follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.example import Document
from regard.tasks.generate import document_encoder
from regard.tasks.inputs import TEXT
from regard.tasks.options import option
from regard.training.task import Metrics, Rows, Task
from regard.transformer.interface import Predicts, Reads


@dataclass(frozen=True, kw_only=True)
class FillOptions:
    """Options of filling in."""

    top_k: int = option(5, at_least=1)
    """Number of proposals for each mask, the most likely first."""


@dataclass(frozen=True, kw_only=True)
class Filling:
    """One text with its masks filled in."""

    text: str
    """The text with the most likely word in place of each mask."""
    proposals: tuple[tuple[tuple[str, float], ...], ...]
    """For each mask, words with their probabilities, highest first."""
    truncated: int = 0
    """Number of tokens that were removed because the text was too long for the network."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        proposals = [[[word, round(score, 6)] for word, score in words] for words in self.proposals]
        return {"text": self.text, "proposals": proposals, "truncated": self.truncated}

    def as_lines(self) -> Sequence[str]:
        """Return the text."""
        return [self.text]


FILL = Task(
    name="fill",
    summary="Fill in the masks of TEXT with MODEL: one output line per input line, in order.",
    input=TEXT,
    options=FillOptions,
    result=Filling,
    example=Document,
    reads=frozenset({Reads.TOKENS}),
    predicts=frozenset({Predicts.MASKED_TOKEN}),
    architectures=("ForMaskedLM",),
    objectives=("masked",),
    rows=Rows.WINDOWS,
    encoder=document_encoder,
    metrics=Metrics(names=("loss", "perplexity", "accuracy")),
)
