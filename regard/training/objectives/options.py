"""The `[objective]` part of a recipe: one class for each objective, and what it needs to be built."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from regard.training.part import Part

Smoothing = Annotated[float, Field(ge=0, lt=1)]


class Teacher(Part):
    """A trained network to learn from (distillation)."""

    load: str
    """Its folder. It needs the same tokenizer, or the same labels."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """How much its answers are softened."""
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How much of the loss comes from it."""


class Translate(Part):
    """Write the target, given the source."""

    kind: Literal["translate"] = "translate"
    smoothing: Smoothing = 0.1
    """How much of the truth is spread over all words."""
    teacher: Teacher | None = None


class Causal(Part):
    """Say the next token."""

    kind: Literal["causal"] = "causal"
    smoothing: Smoothing = 0.0
    teacher: Teacher | None = None


class Masked(Part):
    """Guess hidden words."""

    kind: Literal["masked"] = "masked"
    share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """How many of the tokens are to be guessed."""
    whole_words: bool = False
    """Hide words whole, not token by token."""
    teacher: Teacher | None = None


class Classify(Part):
    """Say the label of a text."""

    kind: Literal["classify"] = "classify"
    smoothing: Smoothing = 0.0
    teacher: Teacher | None = None


class Tag(Part):
    """Say the tag of each word."""

    kind: Literal["tag"] = "tag"
    smoothing: Smoothing = 0.0
    teacher: Teacher | None = None


class Span(Part):
    """Say where the answer begins and ends."""

    kind: Literal["span"] = "span"


AnyOptions = Translate | Causal | Masked | Classify | Tag | Span
Options = Annotated[AnyOptions, Field(discriminator="kind")]

USUAL: dict[str, str] = {
    "translate": "translate",
    "summarize": "translate",
    "generate": "causal",
    "fill": "masked",
    "classify": "classify",
    "tag": "tag",
    "answer": "span",
}
"""The objective of each task."""
