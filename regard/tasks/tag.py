"""tag: a tag for each word, and the entities that they mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from regard.data.example import TaggedSentence
from regard.data.formats import Scheme
from regard.data.tag_schemes import OUTSIDE
from regard.tasks.inputs import TEXT_OR_WORDS
from regard.tasks.options import option
from regard.training.task import Metrics, Rows, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.data.encoders.tags import TaggedSentenceEncoder
    from regard.data.length_policy import LengthPolicy
    from regard.tasks.model_parts import ModelParts
    from regard.tasks.tagger import Tagger
    from regard.tokenization.tokenizer import Tokenizer


Words = tuple[str, ...]
"""A text that is already split into words."""


@dataclass(frozen=True, kw_only=True)
class TagOptions:
    """Options of tagging."""

    words: bool = False
    """The text is already split into words, separated by spaces."""
    scheme: Scheme | None = None
    """The tag scheme of the labels; only tags that it allows follow each other. [from the labels]"""
    batch_tokens: int = option(4096, at_least=1)
    """Maximum number of tokens in a batch."""


class TagKeywords(TypedDict, total=False):
    """The fields of `TagOptions` as keyword arguments, for the type checker. A test compares them."""

    words: bool
    scheme: Scheme | None
    batch_tokens: int


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
    """The mean probability of the tags of its words."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return vars(self) | {"score": round(self.score, 6)}


@dataclass(frozen=True, kw_only=True)
class Tagging:
    """The tags of one text."""

    words: Words
    tags: tuple[str, ...]
    """The tag of each word."""
    scores: tuple[float, ...]
    """The probability of each tag."""
    entities: tuple[Entity, ...]
    """The entities that the tags mark; none for other tags, such as parts of speech."""
    truncated: int = 0
    """Number of tokens that were removed: always 0, a long text is read in windows."""
    windows: int = 1
    """Number of overlapping windows that the text was read in."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        scores = [round(score, 6) for score in self.scores]
        return vars(self) | {"scores": scores, "entities": [entity.as_json() for entity in self.entities]}

    def as_lines(self) -> Sequence[str]:
        """Return the entities as text/type; if there are none, the words with a tag other than `O` as word/tag."""
        pairs = [(entity.text, entity.type) for entity in self.entities] or zip(self.words, self.tags, strict=True)
        return ["  ".join(f"{text}/{tag}" for text, tag in pairs if tag != OUTSIDE)]


def prepare(model: ModelParts, options: TagOptions) -> Tagger:
    """Return a `Tagger`."""
    from regard.tasks.tagger import Tagger

    return Tagger(model.network, model.tokenizer, model.labels, options)


def tagged_sentence_encoder(
    tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None
) -> TaggedSentenceEncoder:
    """Return the encoder of words with tags."""
    from regard.data.encoders.tags import TaggedSentenceEncoder

    return TaggedSentenceEncoder(tokenizer=tokenizer, tags=labels, length_policy=policy)


def tag_metrics(references: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Mapping[str, float]:
    """Compute precision, recall and F1 of entities; of tags that mark none, such as parts of speech, nothing."""
    from regard.data.tag_schemes import detect_scheme
    from regard.metrics.entity_metrics import entity_metrics

    names = {tag for sentence in (*references, *tags) for tag in sentence} - {OUTSIDE}
    if names and detect_scheme([sorted(names)]) is Scheme.PLAIN:
        return {}
    return entity_metrics(references, tags)


TAG = Task(
    name="tag",
    summary="Print the entities in TEXT, or the tags of its words: one output line per input line, in order.",
    input=TEXT_OR_WORDS,
    options=TagOptions,
    result=Tagging,
    prepare=prepare,
    example=TaggedSentence,
    reads=frozenset({Reads.TOKENS}),
    predicts=frozenset({Predicts.TAGS}),
    architectures=("ForTokenClassification",),
    objectives=("tag",),
    has_labels=True,
    rows=Rows.OVERLAPPING_WINDOWS,
    encoder=tagged_sentence_encoder,
    input_of=lambda sentence: sentence.words,
    metrics=Metrics(
        names=("loss", "accuracy", "precision", "recall", "f1"),
        compute=tag_metrics,
        reference_of=lambda sentence: sentence.tags,
        prediction_of=lambda result: result.tags,
    ),
)
