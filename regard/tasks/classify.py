"""classify: the label of a text, of a pair of texts, or of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from regard.data.example import LabeledText
from regard.tasks.inputs import TEXT_PAIR_OR_IMAGE
from regard.tasks.options import option
from regard.training.task import Metrics, Runner, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.data.encoders.labels import LabeledTextEncoder
    from regard.data.length_policy import LengthPolicy
    from regard.tasks.model_parts import ModelParts
    from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions:
    """Options of classification."""

    top_k: int | None = option(None, at_least=1, json_only=True)
    """Number of labels in the scores, the most likely first. [all]"""
    batch_tokens: int = option(4096, at_least=1)
    """Maximum number of tokens in a batch."""
    labels: str | None = None
    """Models for images and texts (CLIP): the labels, separated by commas: "a dog, a cat"."""
    template: str = "{}"
    """With labels: the text that is compared with an image; {} stands for the label: "a photo of {}"."""


class ClassifyKeywords(TypedDict, total=False):
    """The fields of `ClassifyOptions` as keyword arguments, for the type checker. A test compares them."""

    top_k: int | None
    batch_tokens: int
    labels: str | None
    template: str


@dataclass(frozen=True, kw_only=True)
class Classification:
    """The label of one text."""

    label: str
    """The most likely label."""
    scores: Mapping[str, float]
    """The probability of each label, highest first."""
    truncated: int = 0
    """Number of tokens that were removed because the text was too long for the network."""

    def as_json(self) -> dict[str, Any]:
        """Return label and scores as JSON values."""
        scores = {label: round(score, 6) for label, score in self.scores.items()}
        return {"label": self.label, "scores": scores, "truncated": self.truncated}

    def as_lines(self) -> Sequence[str]:
        """Return one line: the label and its probability, separated by a tab."""
        return [f"{self.label}\t{self.scores[self.label]:.4f}"]


def prepare(model: ModelParts, options: ClassifyOptions) -> Runner[Any, Classification]:
    """Return a `Classifier`, or an `ImageClassifier` for a network that reads images."""
    if model.network.reads is Reads.TEXT_AND_IMAGE:
        from regard.tasks.image_classifier import ZeroShotImageClassifier

        return ZeroShotImageClassifier(model.network, model.image_processor, model.tokenizer, options)
    if options.labels is not None:
        raise ValueError(
            f"this model has labels of its own ({', '.join(model.labels[:5])}): leave out --labels, or use a model for "
            "images and texts"
        )
    if model.network.reads is Reads.IMAGE:
        from regard.tasks.image_classifier import ImageClassifier

        return ImageClassifier(model.network, model.image_processor, model.labels, options)
    from regard.tasks.classifier import Classifier

    return Classifier(model.network, model.tokenizer, model.labels, options)


def labeled_text_encoder(
    tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None
) -> LabeledTextEncoder:
    """Return the encoder of texts with a label."""
    from regard.data.encoders.labels import LabeledTextEncoder

    return LabeledTextEncoder(tokenizer=tokenizer, labels=labels, length_policy=policy)


def label_metrics(references: Sequence[str], labels: Sequence[str]) -> Mapping[str, float]:
    """Compute accuracy and macro F1."""
    from regard.metrics.label_metrics import classification_metrics

    return classification_metrics(references, labels)


CLASSIFY = Task(
    name="classify",
    summary="Print the most likely label of TEXT, or of an image, and its probability: one output line per input line, "
    "in order.",
    input=TEXT_PAIR_OR_IMAGE,
    options=ClassifyOptions,
    result=Classification,
    prepare=prepare,
    example=LabeledText,
    reads=frozenset({Reads.TOKENS, Reads.IMAGE, Reads.TEXT_AND_IMAGE}),
    predicts=frozenset({Predicts.LABEL, Predicts.SIMILARITY}),
    architectures=("ForSequenceClassification", "ForImageClassification"),
    objectives=("classify",),
    encoder=labeled_text_encoder,
    input_of=lambda example: example.text if example.pair is None else (example.text, example.pair),
    metrics=Metrics(
        names=("loss", "accuracy", "macro_f1"),
        compute=label_metrics,
        reference_of=lambda example: str(example.label),
        prediction_of=lambda result: result.label,
    ),
)
