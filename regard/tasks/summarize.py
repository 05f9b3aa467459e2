"""summarize: a short text for a long one, with an encoder-decoder. It can be trained; using it follows."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.example import Pair
from regard.tasks.generated_text import GeneratedText
from regard.tasks.inputs import TEXT
from regard.tasks.options import option
from regard.tasks.translate import PAIR_METRICS, pair_encoder
from regard.training.task import Task
from regard.transformer.interface import Predicts, Reads


@dataclass(frozen=True, kw_only=True)
class SummarizeOptions:
    """Options of summarization. The default of the beam size and of the penalty is in the model's generation config."""

    prefix: str | None = None
    """Text before every source, literal or by the name of its task (T5: "summarize: ", or summarization)."""
    beam: int | None = option(None, flags=("--beam", "--num-beams"), at_least=1)
    """Beam size; 1 is greedy search. [from the generation config, else 1]"""
    length_penalty: float | None = None
    """Exponent of the length in the score of a beam search; above 1 favours longer outputs."""
    max_new_tokens: int | None = option(None, at_least=1)
    """Maximum number of new tokens."""


@dataclass(frozen=True, kw_only=True)
class Summary(GeneratedText):
    """The summary of one text."""


SUMMARIZE = Task(
    name="summarize",
    summary="Summarize TEXT with MODEL: one output line per input line, in order.",
    input=TEXT,
    options=SummarizeOptions,
    result=Summary,
    example=Pair,
    reads=frozenset({Reads.SOURCE_AND_TARGET}),
    predicts=frozenset({Predicts.NEXT_TOKEN}),
    architectures=("ForConditionalGeneration", "MTModel"),
    objectives=("translate",),
    encoder=pair_encoder,
    input_of=lambda pair: pair.source,
    metrics=PAIR_METRICS,
)
