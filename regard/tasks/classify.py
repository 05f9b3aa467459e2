"""classify: the label of a text, of a pair of texts, or of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from regard.data.example import ImageText, LabeledText
from regard.data.label_ids import split_labels
from regard.tasks.inputs import TEXT_PAIR_OR_IMAGE
from regard.tasks.long_input import LongInput
from regard.tasks.options import option
from regard.training.task import AnyTask, Metrics, Runner, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.checkpoint.model_folder import ModelInfo
    from regard.data.encoders.image_texts import ImageTextEncoder
    from regard.data.encoders.labels import LabeledTextEncoder
    from regard.data.image_processor import ImageProcessor
    from regard.data.length_policy import LengthPolicy
    from regard.tasks.model_parts import ModelParts
    from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions:
    """Options of classification."""

    top_k: int | None = option(None, at_least=1, json_only=True)
    """Number of labels in the scores, the most likely first. [all]"""
    threshold: float = 0.5
    """Models with several labels for a text: the probability from which a label is chosen."""
    long: LongInput = LongInput.FIRST
    """A text that is too long for the network: read its first tokens, or the mean of all windows."""
    batch_tokens: int = option(4096, at_least=1)
    """Maximum number of tokens in a batch."""
    labels: str | None = None
    """Models for images and texts (CLIP): the labels, separated by commas: "a dog, a cat"."""
    template: str = "{}"
    """With labels: the text that is compared with an image; {} stands for the label: "a photo of {}"."""


class ClassifyKeywords(TypedDict, total=False):
    """The fields of `ClassifyOptions` as keyword arguments, for the type checker. A test compares them."""

    top_k: int | None
    threshold: float
    long: LongInput | str
    batch_tokens: int
    labels: str | None
    template: str


@dataclass(frozen=True, kw_only=True)
class Classification:
    """The label of one text, its labels if a text can have several, or its score."""

    labels: tuple[str, ...]
    """The most likely label. Of a model with several labels for a text, all above the threshold; of a regression,
    none."""
    scores: Mapping[str, float]
    """The probability of each label, highest first."""
    value: float | None = None
    """The output of a regression."""
    truncated: int = 0
    """Number of tokens that were removed because the text was too long for the network."""
    windows: int = 1
    """Number of windows that the text was read in."""

    @property
    def label(self) -> str:
        """The most likely label; empty if no label is chosen."""
        return self.labels[0] if self.labels else ""

    def as_json(self) -> dict[str, Any]:
        """Return all fields and the label as JSON values."""
        values = {"label": self.label, **vars(self), "labels": [*self.labels]}
        values["scores"] = {label: round(score, 6) for label, score in self.scores.items()}
        values["value"] = None if self.value is None else round(self.value, 6)
        return values

    def as_lines(self) -> Sequence[str]:
        """Return one line: the labels, each followed by its probability, separated by tabs; or the value."""
        if self.value is not None:
            return [f"{self.value:.4f}"]
        return ["\t".join(f"{label}\t{self.scores[label]:.4f}" for label in self.labels)]


def prepare(model: ModelParts, options: ClassifyOptions) -> Runner[Any, Classification]:
    """Return a `Classifier`, or an `ImageClassifier` for a network that reads images."""
    if model.network.reads is Reads.TEXT_AND_IMAGE:
        from regard.data.image_processor import require_processor
        from regard.tasks.image_classifier import ZeroShotImageClassifier

        return ZeroShotImageClassifier(
            model.network, require_processor(model.image_processor), model.tokenizer, options
        )
    if options.labels is not None:
        raise ValueError(
            f"this model has labels of its own ({', '.join(model.labels[:5])}): leave out --labels, or use a model for "
            "images and texts"
        )
    if model.network.reads is Reads.IMAGE:
        from regard.data.image_processor import require_processor
        from regard.tasks.image_classifier import ImageClassifier

        return ImageClassifier(model.network, require_processor(model.image_processor), model.labels, options)
    from regard.tasks.classifier import Classifier

    return Classifier(model.network, model.tokenizer, model.labels, model.info, options)


def labeled_text_encoder(
    tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None, *, separator: str | None = None
) -> LabeledTextEncoder:
    """Return the encoder of texts with a label, with several if there is a separator, with a score if there is none."""
    from regard.data.encoders.labels import LabeledTextEncoder

    return LabeledTextEncoder(tokenizer=tokenizer, labels=labels or None, separator=separator, length_policy=policy)


def label_metrics(references: Sequence[str], results: Sequence[Classification]) -> Mapping[str, float]:
    """Compute accuracy, macro F1, Matthews correlation and calibration error."""
    from regard.metrics.label_metrics import calibration_error, classification_metrics

    labels = [result.label for result in results]
    correct = [reference == label for reference, label in zip(references, labels, strict=True)]
    error = calibration_error(correct, [result.scores[result.label] for result in results])
    return {**classification_metrics(references, labels), "calibration_error": error}


def label_set_metrics(references: Sequence[Sequence[str]], results: Sequence[Classification]) -> Mapping[str, float]:
    """Compute the share of texts with exactly the right labels, and micro- and macro-averaged F1."""
    from regard.metrics.label_metrics import multi_label_metrics

    return multi_label_metrics(references, [result.labels for result in results])


def score_metrics(references: Sequence[float], results: Sequence[Classification]) -> Mapping[str, float]:
    """Compute Spearman and Pearson correlation, and the mean squared error."""
    from regard.metrics.label_metrics import correlation_metrics

    return correlation_metrics(references, [result.value or 0.0 for result in results])


def fit_label_temperature(references: Sequence[str], results: Sequence[Classification]) -> ModelInfo:
    """Return the temperature with which the probabilities of validation data are most likely (Guo et al. 2017)."""
    from regard.tasks.temperature import fit_temperature

    known = [pair for pair in zip(references, results, strict=True) if pair[0] in pair[1].scores]
    return {"temperature": fit_temperature([result.scores for _, result in known], [label for label, _ in known])}


def image_label_encoder(
    processor: ImageProcessor, tokenizer: Tokenizer | None, labels: tuple[str, ...], policy: LengthPolicy | None
) -> ImageTextEncoder:
    """Return the encoder of images with a label."""
    from regard.data.encoders.image_texts import ImageTextEncoder

    del tokenizer, policy
    return ImageTextEncoder(processor=processor, labels=labels)


def for_objective(task: AnyTask, objective: Any) -> AnyTask:
    """Return the declaration for a recipe with one label for a text, with several, with a score, or for images."""
    task = replace(task, reads=frozenset({Reads.TOKENS}), predicts=frozenset({Predicts.LABEL}))
    match objective.kind:
        case "multi_label":
            names = ("loss", "exact_match", "micro_f1", "macro_f1")
            return replace(
                task,
                encoder=partial(labeled_text_encoder, separator=objective.separator),
                metrics=Metrics(
                    names=names,
                    compute=label_set_metrics,
                    reference_of=lambda example: split_labels(example.label, objective.separator),
                    prediction_of=lambda result: result,
                ),
            )
        case "regression":
            names = ("loss", "spearman", "pearson", "mse")
            return replace(
                task,
                has_labels=False,
                metrics=Metrics(
                    names=names,
                    compute=score_metrics,
                    reference_of=lambda example: example.label,
                    prediction_of=lambda result: result,
                ),
            )
        case "classify_images":
            return replace(
                task,
                example=ImageText,
                reads=frozenset({Reads.IMAGE}),
                architectures=("ForImageClassification",),
                encoder=None,
                image_encoder=image_label_encoder,
                input_of=lambda example: example.image,
                metrics=Metrics(names=("loss", "accuracy")),
            )
        case _:
            return task


CLASSIFY = Task(
    name="classify",
    summary="Print the most likely label of TEXT, or of an image, and its probability: one output line per input line, "
    "in order.",
    details="A model with several labels for a text prints all above the threshold, a regression its score.",
    input=TEXT_PAIR_OR_IMAGE,
    options=ClassifyOptions,
    result=Classification,
    prepare=prepare,
    example=LabeledText,
    reads=frozenset({Reads.TOKENS, Reads.IMAGE, Reads.TEXT_AND_IMAGE}),
    predicts=frozenset({Predicts.LABEL, Predicts.SIMILARITY}),
    architectures=("ForSequenceClassification", "ForImageClassification"),
    objectives=("classify", "multi_label", "regression", "classify_images"),
    for_objective=for_objective,
    has_labels=True,
    encoder=labeled_text_encoder,
    input_of=lambda example: example.text if example.pair is None else (example.text, example.pair),
    metrics=Metrics(
        names=("loss", "accuracy", "macro_f1", "matthews", "calibration_error"),
        compute=label_metrics,
        calibrate=fit_label_temperature,
        reference_of=lambda example: str(example.label),
        prediction_of=lambda result: result,
    ),
)
