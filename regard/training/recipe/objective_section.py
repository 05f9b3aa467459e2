"""The `[objective]` part of a recipe: one class for each objective, and what it needs to be built."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from regard.training.recipe.base import Flag, Part, Whole

Smoothing = Annotated[float, Field(ge=0, lt=1)]


class Teacher(Part):
    """A trained network to learn from (distillation)."""

    load: str
    """Its folder. It needs the same tokenizer, or the same labels."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """How much its answers are softened."""
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How much of the loss comes from it."""


class Labels(Part):
    """What every objective has that asks for labels."""

    teacher: Teacher | None = None
    """Learn from a trained network too."""
    agreement: Annotated[float, Field(ge=0)] = 0.0
    """Read each batch twice, with other dropout, and ask for the same answers (R-Drop): how much that weighs, 0 for
    never. Twice the time, and often better where there is little data and much time; 1 to 5 are usual."""
    agreement_from: Annotated[Whole, Field(ge=0)] = 0
    """The epoch that the agreement begins with (the first is 0). A network that knows little yet gains little by it,
    and learns twice as fast without."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Labels:
        if self.teacher is not None and self.agreement:
            raise ValueError("a teacher and an agreement: leave out one of them, they do not go together")
        if self.agreement_from and not self.agreement:
            raise ValueError("agreement_from says when the agreement begins, but there is none: give agreement too")
        return self


class Writing(Labels):
    """What the objectives have besides that learn to write."""

    splitting: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Take tokens apart at random while training, and their parts again, as far as a `bpe` vocabulary has merged them
    (much like BPE-dropout): how often, 0 for never. Often better where there is little data; 0.1 is usual. Rows grow by
    it; one that would outgrow the positions that a network has learnt stays whole."""


class Translate(Writing):
    """Write the target, given the source."""

    tasks: ClassVar[tuple[str, ...]] = ("translate", "summarize")
    kind: Literal["translate"] = "translate"
    smoothing: Smoothing = 0.1
    """How much of the truth is spread over all words."""


class Causal(Writing):
    """Say the next token."""

    tasks: ClassVar[tuple[str, ...]] = ("generate",)
    kind: Literal["causal"] = "causal"
    smoothing: Smoothing = 0.0


class Masked(Labels):
    """Guess hidden words."""

    tasks: ClassVar[tuple[str, ...]] = ("fill",)
    kind: Literal["masked"] = "masked"
    share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """How many of the tokens are to be guessed."""
    whole_words: Flag = False
    """Hide words whole, not token by token."""


class Classify(Labels):
    """Say the label of a text."""

    tasks: ClassVar[tuple[str, ...]] = ("classify",)
    kind: Literal["classify"] = "classify"
    smoothing: Smoothing = 0.0


class Tag(Labels):
    """Say the tag of each word."""

    tasks: ClassVar[tuple[str, ...]] = ("tag",)
    kind: Literal["tag"] = "tag"
    smoothing: Smoothing = 0.0


class Span(Part):
    """Say where the answer begins and ends."""

    tasks: ClassVar[tuple[str, ...]] = ("answer",)
    kind: Literal["span"] = "span"


Asking = Translate | Causal | Masked | Classify | Tag
"""Those that ask for a label at each place."""
AnyOptions = Asking | Span
Options = Annotated[AnyOptions, Field(discriminator="kind")]

KINDS: dict[str, tuple[str, ...]] = {
    task: tuple(option.model_fields["kind"].default for option in get_args(AnyOptions) if task in option.tasks)
    for task in dict.fromkeys(task for option in get_args(AnyOptions) for task in option.tasks)
}
"""The objectives that each task can be trained with, the usual one first."""
