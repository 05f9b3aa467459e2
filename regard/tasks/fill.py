"""fill: the words that masks stand for, with an encoder or an encoder-decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from regard.data.example import Document
from regard.tasks.generate import document_encoder
from regard.tasks.inputs import TEXT
from regard.tasks.options import option
from regard.training.task import AnyTask, Metrics, Rows, Runner, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.tasks.model_parts import ModelParts


@dataclass(frozen=True, kw_only=True)
class FillOptions:
    """Options of filling in."""

    top_k: int = option(5, at_least=1)
    """Number of proposals for each mask, the most likely first."""
    pseudo_perplexity: bool = option(False, json_only=True)
    """Compute the pseudo-perplexity of the text, for which each token is masked in turn."""
    batch_tokens: int = option(4096, at_least=1)
    """Maximum number of tokens in a batch."""


class FillKeywords(TypedDict, total=False):
    """The fields of `FillOptions` as keyword arguments, for the type checker. A test compares them."""

    top_k: int
    pseudo_perplexity: bool
    batch_tokens: int


@dataclass(frozen=True, kw_only=True)
class Filling:
    """One text with its masks filled in."""

    text: str
    """The text with the most likely proposal in place of each mask."""
    proposals: tuple[tuple[tuple[str, float], ...], ...]
    """For each mask, proposals with their probabilities, highest first."""
    pseudo_perplexity: float | None = None
    """exp of the mean negative log-probability of each token, given all others (Salazar et al. 2020)."""
    truncated: int = 0
    """Number of tokens that were removed because the text was too long for the network."""
    windows: int = 1
    """Number of overlapping windows that the text was read in."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a person should know besides the text."""
        return () if self.proposals else ("without a mask: write [MASK] where a word is missing",)

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        proposals = [[[word, round(score, 6)] for word, score in words] for words in self.proposals]
        perplexity = None if self.pseudo_perplexity is None else round(self.pseudo_perplexity, 6)
        return vars(self) | {"proposals": proposals, "pseudo_perplexity": perplexity}

    def as_lines(self) -> Sequence[str]:
        """Return the text."""
        return [self.text]


def prepare(model: ModelParts, options: FillOptions) -> Runner[str, Filling]:
    """Return a `Filler`, or a `SentinelFiller` for an encoder-decoder that generates what is missing (T5)."""
    from regard.tasks.mask_filler import MaskFiller
    from regard.tasks.sentinel_filler import SentinelFiller, sentinel_ids

    network = model.network
    if network.reads is Reads.TOKENS and Predicts.MASKED_TOKEN not in network.predicts:
        raise ValueError("fill needs a network that predicts masked tokens; this one predicts the next: use `generate`")
    if model.tokenizer.special_ids.mask is not None:
        return MaskFiller(network, model.tokenizer, model.generation_config, options)
    if network.reads is Reads.SOURCE_AND_TARGET and sentinel_ids(model.tokenizer):
        return SentinelFiller(network, model.tokenizer, model.generation_config, options)
    raise ValueError("the tokenizer of this model has no mask token and no sentinels (<extra_id_0>): it cannot fill")


def for_objective(task: AnyTask, objective: Any) -> AnyTask:
    """Return the declaration for a recipe: masked language modelling trains encoders."""
    del objective
    return replace(task, reads=frozenset({Reads.TOKENS}), predicts=frozenset({Predicts.MASKED_TOKEN}))


FILL = Task(
    name="fill",
    summary="Fill in the masks of TEXT with MODEL: one output line per input line, in order.",
    details="A mask is written [MASK], whichever model it is.",
    input=TEXT,
    options=FillOptions,
    result=Filling,
    prepare=prepare,
    example=Document,
    reads=frozenset({Reads.TOKENS, Reads.SOURCE_AND_TARGET}),
    predicts=frozenset({Predicts.MASKED_TOKEN, Predicts.NEXT_TOKEN}),
    excludes=frozenset({(Reads.TOKENS, Predicts.NEXT_TOKEN)}),
    architectures=("ForMaskedLM",),
    objectives=("masked",),
    for_objective=for_objective,
    rows=Rows.WINDOWS,
    encoder=document_encoder,
    metrics=Metrics(names=("loss", "perplexity", "accuracy", "top5_accuracy")),
)
