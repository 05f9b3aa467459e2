"""The `[objective]` section of a recipe: one config class for each objective."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from regard.data.question_template import check_question_format
from regard.training.recipe.base import Integer, Section, StrictBool


def _check_format(value: str) -> str:
    check_question_format(value)
    return value


LabelSmoothing = Annotated[float, Field(ge=0, lt=1)]


class DistillationSection(Section):
    """Knowledge distillation from a trained model (Hinton et al. 2015)."""

    teacher: str
    """Directory of the teacher. It needs the same tokenizer, and the same labels where the task has labels."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Both logits are divided by it before the softmax."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight of the KL divergence to the teacher; the cross-entropy to the labels has 1 - alpha."""


class CrossEntropyConfig(Section):
    """Options of all objectives with a cross-entropy loss."""

    distillation: DistillationSection | None = None
    """Learn from a teacher as well as from the labels."""
    rdrop: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the R-Drop term (Liang et al. 2021); 0 disables it. Two forward passes per batch with different
    dropout, and the KL divergence between them: twice the time. Often helps with little data; 1 to 5 are usual."""
    rdrop_start_epoch: Annotated[Integer, Field(ge=0)] = 0
    """First epoch with R-Drop, counted from 0. Early in training R-Drop gains little, and steps without it are twice as
    fast."""

    @model_validator(mode="after")
    def _check_exclusive(self) -> CrossEntropyConfig:
        if self.distillation is not None and self.rdrop:
            raise ValueError("distillation and rdrop cannot be combined: remove one")
        if self.rdrop_start_epoch and not self.rdrop:
            raise ValueError("rdrop_start_epoch needs rdrop > 0")
        return self


class AutoregressiveConfig(CrossEntropyConfig):
    """Options of the objectives that train a text decoder."""

    bpe_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that a token of a `bpe` tokenizer is replaced by the pair it was merged from, recursively (similar to
    BPE-dropout, Provilkov et al. 2020); 0 disables it. Often helps with little data; 0.1 is usual. Sequences become
    longer; one that would exceed the maximum length of the network is left unsplit."""


class Seq2SeqLMConfig(AutoregressiveConfig):
    """Sequence-to-sequence: predict the target given the source."""

    kind: Literal["translate"] = "translate"
    prefix: str = ""
    """Text before every source, as T5 has one for each task ("summarize: "). It is stored with the model."""
    label_smoothing: LabelSmoothing = 0.1
    """Probability mass that is spread evenly over the vocabulary (Szegedy et al. 2015)."""


class CausalLMConfig(AutoregressiveConfig):
    """Causal language modelling: predict the next token."""

    kind: Literal["causal"] = "causal"
    label_smoothing: LabelSmoothing = 0.0
    """Probability mass that is spread evenly over all labels; 0 disables it."""


class MaskedLMConfig(CrossEntropyConfig):
    """Masked language modelling: predict masked tokens."""

    kind: Literal["masked"] = "masked"
    mask_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the tokens that are masked (BERT: 0.15)."""
    whole_word_masking: StrictBool = False
    """Mask all tokens of a word together."""


class SequenceClassificationConfig(CrossEntropyConfig):
    """Sequence classification: predict the label of a text."""

    kind: Literal["classify"] = "classify"
    label_smoothing: LabelSmoothing = 0.0
    """Probability mass that is spread evenly over all labels; 0 disables it."""


class TokenClassificationConfig(CrossEntropyConfig):
    """Token classification: predict the tag of each word."""

    kind: Literal["tag"] = "tag"
    label_smoothing: LabelSmoothing = 0.0
    """Probability mass that is spread evenly over all labels; 0 disables it."""


class MultiLabelConfig(Section):
    """Classification with any number of labels for each text: a binary cross-entropy for each label."""

    kind: Literal["multi_label"] = "multi_label"
    separator: Annotated[str, Field(min_length=1)] = ","
    """What separates the labels of a text in the data."""


class RegressionConfig(Section):
    """Regression: predict a number for each text or pair of texts, with the mean squared error."""

    kind: Literal["regression"] = "regression"


class ImageClassificationConfig(Section):
    """Image classification: predict the label of an image."""

    kind: Literal["classify_images"] = "classify_images"
    label_smoothing: LabelSmoothing = 0.0
    """Probability mass that is spread evenly over all labels; 0 disables it."""


class ContrastiveConfig(Section):
    """Contrastive learning of text vectors: of two texts that belong together, each finds the other in the batch."""

    kind: Literal["contrastive"] = "contrastive"
    pooling: Literal["mean", "first", "max", "last"] = "mean"
    """How the hidden states of a text become its vector."""
    scale: Annotated[float, Field(gt=0)] = 20.0
    """Factor on the cosines before the softmax: the inverse of the temperature."""
    min_score: float = 0.5
    """The lowest score of a pair in the training data that belongs together; others are left out."""


class ImageTextConfig(Section):
    """Contrastive learning of images and captions (CLIP, Radford et al. 2021)."""

    kind: Literal["image_text"] = "image_text"


class QuestionAnsweringConfig(Section):
    """Extractive question answering: predict the first and last token of the answer."""

    kind: Literal["span"] = "span"


class GenerativeAnswerConfig(AutoregressiveConfig):
    """Question answering by an encoder-decoder: generate the answer, given question and context as one text."""

    kind: Literal["generative"] = "generative"
    label_smoothing: LabelSmoothing = 0.0
    """Probability mass that is spread evenly over all labels; 0 disables it."""
    format: Annotated[str, AfterValidator(_check_format)] = "question: {question} context: {context}"
    """The input of the network. It is stored with the model."""
    no_answer: str = "unanswerable"
    """The output for questions without an answer. It is stored with the model."""


class AnswerContinuationConfig(CrossEntropyConfig):
    """Question answering by a decoder: continue a text of context and question with the answer."""

    kind: Literal["continuation"] = "continuation"
    label_smoothing: LabelSmoothing = 0.0
    """Probability mass that is spread evenly over all labels; 0 disables it."""
    format: Annotated[str, AfterValidator(_check_format)] = "{context}\nQuestion: {question}\nAnswer:"
    """The text before the answer. It is stored with the model."""
    no_answer: str = "unanswerable"
    """The answer to questions without one. It is stored with the model."""


AnyCrossEntropyConfig = (
    Seq2SeqLMConfig
    | CausalLMConfig
    | MaskedLMConfig
    | SequenceClassificationConfig
    | TokenClassificationConfig
    | GenerativeAnswerConfig
    | AnswerContinuationConfig
)
"""The objectives with a label for each position or sequence."""
ImageConfig = ImageClassificationConfig | ImageTextConfig
"""The objectives whose examples have images."""
AnyObjectiveConfig = (
    AnyCrossEntropyConfig
    | MultiLabelConfig
    | RegressionConfig
    | QuestionAnsweringConfig
    | ContrastiveConfig
    | ImageConfig
)
ObjectiveConfig = Annotated[AnyObjectiveConfig, Field(discriminator="kind")]
