"""embed: a vector for a text, or for an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from regard.data.example import ImageText, LabeledText
from regard.tasks.inputs import TEXT_OR_IMAGE
from regard.tasks.long_input import LongInput
from regard.tasks.options import option
from regard.training.task import AnyTask, Metrics, Runner, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.data.encoders.image_texts import ImageTextEncoder
    from regard.data.encoders.text_pairs import TextPairEncoder
    from regard.data.image_processor import ImageProcessor
    from regard.data.length_policy import LengthPolicy
    from regard.tasks.model_parts import ModelParts
    from regard.tokenization.tokenizer import Tokenizer

SHOWN_NUMBERS = 3
"""Number of numbers of a vector that `repr` shows."""


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """Options of embedding."""

    normalize: bool = False
    """Scale each vector to length 1, so that a dot product is a cosine. (Many models do so anyway.)"""
    pooling: str | None = None
    """How token vectors become the vector of a text: mean, first, max, last. [from the folder, else mean]"""
    truncate_dim: int | None = option(None, at_least=1)
    """Keep only the first numbers of each vector (for models trained so that they suffice). [all]"""
    prompt: str | None = None
    """Name of a prompt of the model, or a text that is put before each input: "query: ". [from the folder]"""
    long: LongInput = LongInput.FIRST
    """A text that is too long for the network: read its first tokens, or the mean of all windows."""
    int8: bool = False
    """Round each vector to whole numbers from -127 to 127: a quarter of the size."""
    tokens: bool = False
    """Return the vectors of the words in their context too."""
    images: bool = False
    """The inputs are names of image files, for models that read texts and images."""
    batch_tokens: int = option(4096, at_least=1)
    """Maximum number of tokens in a batch."""


class EmbedKeywords(TypedDict, total=False):
    """The fields of `EmbedOptions` as keyword arguments, for the type checker. A test compares them."""

    normalize: bool
    pooling: str | None
    truncate_dim: int | None
    prompt: str | None
    long: LongInput | str
    int8: bool
    tokens: bool
    images: bool
    batch_tokens: int


@dataclass(frozen=True, kw_only=True)
class WordVector:
    """The vector of one word in its context: the mean of the vectors of its tokens."""

    text: str
    """The word."""
    start: int
    """Start in the text, in characters."""
    end: int
    """End in the text, in characters."""
    vector: tuple[float, ...]

    def __repr__(self) -> str:
        return f"WordVector({self.text!r}, start={self.start}, end={self.end}, {_format_vector(self.vector)})"


@dataclass(frozen=True, kw_only=True)
class TextVector:
    """The vector of one text or image."""

    vector: tuple[float, ...] | tuple[int, ...]
    """Its numbers; whole numbers with `int8`. `numpy.array([result.vector for result in results])` gives a matrix."""
    scale: float | None = None
    """With `int8`: what the whole numbers are multiplied with."""
    words: tuple[WordVector, ...] = ()
    """With `tokens`: the vectors of its words."""
    windows: int = 1
    """Number of windows that the vector is the mean of."""
    truncated: int = 0
    """Number of tokens that were removed because the text was too long for the network."""

    def __repr__(self) -> str:
        words = f", {len(self.words)} words" if self.words else ""
        return f"TextVector({_format_vector(self.vector)}{words}, truncated={self.truncated})"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        values: dict[str, Any] = {"vector": [*self.vector]}
        if self.scale is not None:
            values["scale"] = self.scale
        if self.words:
            values["words"] = [vars(word) | {"vector": [*word.vector]} for word in self.words]
        return values | {"windows": self.windows, "truncated": self.truncated}

    def as_lines(self) -> Sequence[str]:
        """Return the numbers, separated by spaces; of words, a line each: the word, a tab, its numbers."""
        if self.words:
            return [f"{word.text}\t{_join_numbers(word.vector)}" for word in self.words]
        return [_join_numbers(self.vector)]


def _join_numbers(vector: Sequence[float]) -> str:
    return " ".join(f"{number:.9g}" for number in vector)


def _format_vector(vector: Sequence[float]) -> str:
    shown = ", ".join(f"{number:.4g}" for number in vector[:SHOWN_NUMBERS])
    return f"{len(vector)} numbers: {shown}, …"


def prepare(model: ModelParts, options: EmbedOptions) -> Runner[Any, TextVector]:
    """Return an `Embedder`, or an `ImageEmbedder` for images."""
    if options.images:
        from regard.data.image_processor import require_processor
        from regard.tasks.image_embedder import ImageEmbedder

        return ImageEmbedder(model.network, require_processor(model.image_processor), options)
    from regard.tasks.embedder import Embedder

    return Embedder(model.network, model.tokenizer, model.sentence_encoder, options)


def text_pair_encoder(
    tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None, *, min_score: float = 0.5
) -> TextPairEncoder:
    """Return the encoder of two texts that belong together."""
    from regard.data.encoders.text_pairs import TextPairEncoder

    del labels
    return TextPairEncoder(tokenizer=tokenizer, min_score=min_score, length_policy=policy)


def captioned_image_encoder(
    processor: ImageProcessor, tokenizer: Tokenizer | None, labels: tuple[str, ...], policy: LengthPolicy | None
) -> ImageTextEncoder:
    """Return the encoder of images with a caption."""
    from regard.data.encoders.image_texts import ImageTextEncoder

    del labels
    return ImageTextEncoder(processor=processor, tokenizer=tokenizer, length_policy=policy)


def for_objective(task: AnyTask, objective: Any) -> AnyTask:
    """Return the declaration for a recipe with pairs of texts, or with images and captions."""
    if objective.kind == "image_text":
        return replace(
            task,
            example=ImageText,
            reads=frozenset({Reads.TEXT_AND_IMAGE}),
            predicts=frozenset({Predicts.SIMILARITY}),
            encoder=None,
            image_encoder=captioned_image_encoder,
            input_of=None,
            metrics=Metrics(names=("loss", "accuracy", "image_recall@10", "text_recall@10")),
        )
    return replace(
        task,
        reads=frozenset({Reads.TOKENS}),
        encoder=partial(text_pair_encoder, min_score=objective.min_score),
        metrics=Metrics(names=("loss", "accuracy", "spearman")),
    )


EMBED = Task(
    name="embed",
    summary="Print a vector for TEXT: one output line per input line, in order.",
    details="With -o, write the vectors to a file: a matrix (.npy), or one JSON object per line (.jsonl). With "
    "--index, write the texts and their vectors to a folder, for `regard search`.",
    input=TEXT_OR_IMAGE,
    options=EmbedOptions,
    result=TextVector,
    prepare=prepare,
    example=LabeledText,
    reads=frozenset({Reads.TOKENS, Reads.TEXT_AND_IMAGE}),
    predicts=frozenset({Predicts.VECTORS, Predicts.MASKED_TOKEN, Predicts.SIMILARITY}),
    architectures=("Model",),
    objectives=("contrastive", "image_text"),
    for_objective=for_objective,
    encoder=text_pair_encoder,
    input_of=lambda example: example.text,
)
