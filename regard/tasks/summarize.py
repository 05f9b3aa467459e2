"""summarize: a short text for a long one, with an encoder-decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from regard.data.example import Pair
from regard.tasks.generated_text import GeneratedText
from regard.tasks.inputs import TEXT
from regard.tasks.options import option
from regard.tasks.translate import pair_encoder, with_source_prefix
from regard.training.task import Metrics, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.tasks.model_parts import ModelParts
    from regard.tasks.summarizer import Summarizer


@dataclass(frozen=True, kw_only=True)
class SummarizeOptions:
    """Options of summarization. The default of the beam size and of the penalty is in the model's generation config."""

    length: int | None = option(None, at_least=1)
    """Length of a summary in words: at least 3/4 and at most 5/4 of it. [what the model finds right]"""
    prefix: str | None = None
    """Text before every source, literal or by the name of its task (T5: "summarize: "). [from the model]"""
    beam: int | None = option(None, flags=("--beam", "--num-beams"), at_least=1)
    """Beam size; 1 is greedy search. [from the generation config, else 1]"""
    length_penalty: float | None = None
    """Exponent of the length in the score of a beam search; above 1 favours longer outputs."""
    max_new_tokens: int | None = option(None, at_least=1)
    """Maximum number of new tokens. [4 × source length + 64, limited by the positions of the network]"""
    batch_size: int | None = option(None, at_least=1)
    """Number of sequences that are decoded in one batch. [by the width of the network]"""

    def __post_init__(self) -> None:
        if self.length is not None and self.max_new_tokens is not None:
            raise ValueError("length and max_new_tokens cannot be combined: leave out one")


class SummarizeKeywords(TypedDict, total=False):
    """The fields of `SummarizeOptions` as keyword arguments, for the type checker. A test compares them."""

    length: int | None
    prefix: str | None
    beam: int | None
    num_beams: int | None
    length_penalty: float | None
    max_new_tokens: int | None
    batch_size: int | None


@dataclass(frozen=True, kw_only=True)
class Summary(GeneratedText):
    """The summary of one text."""


def prepare(model: ModelParts, options: SummarizeOptions) -> Summarizer:
    """Return a `Summarizer`."""
    from regard.tasks.summarizer import Summarizer

    return Summarizer(model, options)


def summary_metrics(references: Sequence[Sequence[str]], texts: Sequence[str]) -> Mapping[str, float]:
    """Compute ROUGE, with the reference that fits best."""
    from regard.metrics.rouge import rouge_metrics

    return rouge_metrics(references, texts)


SUMMARIZE = Task(
    name="summarize",
    summary="Summarize TEXT with MODEL: one output line per input line, in order.",
    details="A text that is too long for the network is summarized in parts of whole sentences.",
    input=TEXT,
    options=SummarizeOptions,
    result=Summary,
    prepare=prepare,
    example=Pair,
    reads=frozenset({Reads.SOURCE_AND_TARGET}),
    predicts=frozenset({Predicts.NEXT_TOKEN}),
    architectures=("ForConditionalGeneration", "MTModel"),
    objectives=("translate",),
    for_objective=with_source_prefix,
    encoder=pair_encoder,
    input_of=lambda pair: pair.source,
    metrics=Metrics(
        names=("loss", "perplexity", "accuracy", "rouge1", "rouge2", "rougeL", "rougeLsum"),
        compute=summary_metrics,
        reference_of=lambda pair: (pair.target, *pair.references),
        prediction_of=lambda result: result.text,
    ),
)
