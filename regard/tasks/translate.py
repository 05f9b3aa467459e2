"""translate: from text to text, with an encoder-decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from regard.data.example import Pair
from regard.tasks.generated_text import GeneratedText
from regard.tasks.inputs import TEXT
from regard.tasks.options import option
from regard.training.task import AnyTask, Metrics, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.data.encoders.pairs import PairEncoder
    from regard.data.length_policy import LengthPolicy
    from regard.tasks.model_parts import ModelParts
    from regard.tasks.translator import Translator
    from regard.tokenization.tokenizer import Tokenizer

Alignment = tuple[tuple[int, int], ...]
"""Pairs of word indices, source and target, from 0."""


@dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """Options of translation. The default of the beam size and of the penalty is in the model's generation config."""

    source_language: str | None = option(None, flags=("--from",))
    """Language code of the source, for multilingual models."""
    target_language: str | None = option(None, flags=("--to",))
    """Language code of the target, for multilingual models."""
    prefix: str | None = None
    """Text before every source, literal or by the name of its task (T5: "summarize: ", or summarization)."""
    beam: int | None = option(None, flags=("--beam", "--num-beams"), at_least=1)
    """Beam size; 1 is greedy search. [from the generation config, else 1]"""
    n_best: int = option(1, at_least=1)
    """Number of hypotheses for each text, best first, with their scores."""
    length_penalty: float | None = None
    """Exponent of the length in the score of a beam search; above 1 favours longer outputs."""
    max_new_tokens: int | None = option(None, at_least=1)
    """Maximum number of new tokens. [4 × source length + 64, limited by the positions of the network]"""
    target_prefix: str = ""
    """Text that every target starts with."""
    alignment: bool = option(False, json_only=True)
    """Compute the word alignment from the cross-attention."""
    batch_size: int | None = option(None, at_least=1)
    """Number of sequences that are decoded in one batch; a beam search needs `beam` for each text. [by the width of
    the network]"""


class TranslateKeywords(TypedDict, total=False):
    """The fields of `TranslateOptions` as keyword arguments, for the type checker. A test compares them."""

    source_language: str | None
    target_language: str | None
    prefix: str | None
    beam: int | None
    num_beams: int | None
    n_best: int
    length_penalty: float | None
    max_new_tokens: int | None
    target_prefix: str
    alignment: bool
    batch_size: int | None


@dataclass(frozen=True, kw_only=True)
class Translation(GeneratedText):
    """The translation of one text."""

    alignment: Alignment | None = None
    """With `alignment=True`: pairs of word indices, source and target, from 0."""
    alternatives: tuple[Translation, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        values = super().as_json()
        alternatives = {"alternatives": values.pop("alternatives")} if self.alternatives else {}
        if self.alignment is not None:
            values["alignment"] = [list(pair) for pair in self.alignment]
        return values | alternatives


def prepare(model: ModelParts, options: TranslateOptions) -> Translator:
    """Return a `Translator`."""
    from regard.tasks.translator import Translator

    stored = model.info.get("prompts", {}).get("translate")
    if stored is not None and options.prefix is options.source_language is options.target_language is None:
        options = replace(options, prefix=stored)
    return Translator(model.network, model.tokenizer, model.generation_config, options)


def pair_encoder(
    tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None, *, prefix: str = ""
) -> PairEncoder:
    """Return the encoder of pairs of texts."""
    from regard.data.encoders.pairs import PairEncoder

    del labels
    return PairEncoder(tokenizer=tokenizer, source_length_policy=policy, target_length_policy=policy, prefix=prefix)


def with_source_prefix(task: AnyTask, objective: Any) -> AnyTask:
    """Return the declaration for a recipe with a prefix before every source."""
    return replace(task, encoder=partial(pair_encoder, prefix=objective.prefix))


def text_metrics(references: Sequence[str], texts: Sequence[str]) -> Mapping[str, float]:
    """Compute BLEU and chrF as sacreBLEU defines them."""
    import sacrebleu

    return {
        "bleu": sacrebleu.corpus_bleu(list(texts), [list(references)]).score,
        "chrf": sacrebleu.corpus_chrf(list(texts), [list(references)]).score,
    }


PAIR_METRICS = Metrics(
    names=("loss", "perplexity", "accuracy", "bleu", "chrf"),
    compute=text_metrics,
    reference_of=lambda pair: pair.target,
    prediction_of=lambda result: result.text,
)
TRANSLATE = Task(
    name="translate",
    summary="Translate TEXT with MODEL: one output line per input line, in order.",
    details="Models for several languages or tasks need --from, --to or --prefix. If one is missing, the error lists "
    "the available values.",
    input=TEXT,
    options=TranslateOptions,
    result=Translation,
    prepare=prepare,
    example=Pair,
    reads=frozenset({Reads.SOURCE_AND_TARGET}),
    predicts=frozenset({Predicts.NEXT_TOKEN}),
    architectures=("ForConditionalGeneration", "MTModel"),
    objectives=("translate",),
    for_objective=with_source_prefix,
    encoder=pair_encoder,
    input_of=lambda pair: pair.source,
    metrics=PAIR_METRICS,
)
