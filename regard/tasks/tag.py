"""tag: a tag for each word, and the entities that they mark. It can be trained; using it follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.data.example import TaggedSentence
from regard.tasks.inputs import TEXT
from regard.training.task import Metrics, Rows, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.data.encoders.tags import TaggedSentenceEncoder
    from regard.data.length_policy import LengthPolicy
    from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class TagOptions:
    """Options of tagging."""

    words: bool = False
    """The text is already split into words, separated by spaces."""


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A part of a text with its type."""

    type: str
    text: str
    start: int
    """Start in the text, in characters."""
    end: int
    """End in the text, in characters."""
    score: float
    """The probability of its tags."""


@dataclass(frozen=True, kw_only=True)
class Tagging:
    """The tags of one text."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """The tag of each word."""
    entities: tuple[Entity, ...]
    """The entities that the tags mark."""
    truncated: int = 0
    """Number of tokens that were removed because the text was too long for the network."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        entities = [vars(entity) | {"score": round(entity.score, 6)} for entity in self.entities]
        return {"words": [*self.words], "tags": [*self.tags], "entities": entities, "truncated": self.truncated}

    def as_lines(self) -> Sequence[str]:
        """Return the words with a tag other than `O`, as word/tag."""
        return [" ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True) if tag != "O")]


def tagged_sentence_encoder(
    tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None
) -> TaggedSentenceEncoder:
    """Return the encoder of words with tags."""
    from regard.data.encoders.tags import TaggedSentenceEncoder

    return TaggedSentenceEncoder(tokenizer=tokenizer, tags=labels, length_policy=policy)


def tag_metrics(references: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Mapping[str, float]:
    """Compute precision, recall and F1 of entities."""
    from regard.metrics.task_metrics import entity_metrics

    return entity_metrics(references, tags)


TAG = Task(
    name="tag",
    summary="Print the tags of the words of TEXT: one output line per input line, in order.",
    input=TEXT,
    options=TagOptions,
    result=Tagging,
    example=TaggedSentence,
    reads=frozenset({Reads.TOKENS}),
    predicts=frozenset({Predicts.TAGS}),
    architectures=("ForTokenClassification",),
    objectives=("tag",),
    rows=Rows.OVERLAPPING_WINDOWS,
    encoder=tagged_sentence_encoder,
    input_of=lambda sentence: " ".join(sentence.words),
    metrics=Metrics(
        names=("loss", "accuracy", "precision", "recall", "f1"),
        compute=tag_metrics,
        reference_of=lambda sentence: sentence.tags,
        prediction_of=lambda result: result.tags,
    ),
)
