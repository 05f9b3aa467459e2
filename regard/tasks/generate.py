"""generate: continue a prompt with a decoder, or write a text for a source with an encoder-decoder."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from regard.data.example import Document
from regard.tasks.generated_text import GeneratedText
from regard.tasks.inputs import PROMPT
from regard.tasks.options import option
from regard.training.task import AnyTask, Metrics, Rows, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.data.encoders.documents import DocumentEncoder
    from regard.data.length_policy import LengthPolicy
    from regard.tasks.generator import Generator
    from regard.tasks.model_parts import ModelParts
    from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Random sampling instead of greedy or beam search."""

    seed: int | None = None
    """The same seed and prompt give the same text. [drawn at random, once for all prompts]"""
    temperature: float = 1.0
    """Softmax temperature; below 1 less random, above 1 more, 0 not at all: greedy search."""
    top_k: int | None = option(None, at_least=1)
    """Sample from the k most likely tokens."""
    top_p: float | None = None
    """Sample from the most likely tokens whose probabilities add up to p (nucleus sampling)."""
    min_p: float | None = None
    """Sample from tokens that are at least p times as likely as the most likely one."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature:g}: expected 0 (greedy search) or more")

    def with_seed(self) -> Sampling:
        """Return the same with a seed; if there is none, it is drawn."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(2**31))


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """Options of generation. The default of the beam size and of the penalties is in the model's generation config."""

    sampling: Sampling | None = option(None, flags=("--sample",))
    """Sample tokens at random, instead of greedy or beam search."""
    beam: int | None = option(None, flags=("--beam", "--num-beams"), at_least=1)
    """Beam size; 1 is greedy search. [from the generation config, else 1]"""
    n_best: int = option(1, at_least=1)
    """Number of outputs for each prompt: the best hypotheses of the beam, or independent samples."""
    length_penalty: float | None = None
    """Exponent of the length in the score of a beam search; above 1 favours longer outputs."""
    repetition_penalty: float | None = None
    """Above 1, tokens that already occurred become less likely (Keskar et al. 2019)."""
    no_repeat_ngram_size: int | None = option(None, at_least=1)
    """No n-gram of this size occurs twice."""
    max_new_tokens: int | None = option(None, at_least=1)
    """Maximum number of new tokens. [the rest of the context length, or 1024 if the network has none]"""
    stop: Sequence[str] = ()
    """Stop string: the output ends with the first one that is generated."""
    stop_on_repetition: bool = False
    """Stop when the output repeats itself: the same n-gram of at most 8 tokens, 4 times in a row."""
    control: str | None = None
    """Name of a control code (CTRL)."""
    batch_size: int = option(16, at_least=1)
    """Number of sequences that are decoded in one batch."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", tuple(self.stop))
        if self.sampling is not None and self.sampling.temperature == 0:
            object.__setattr__(self, "sampling", None)
        if self.sampling is not None and self.beam is not None:
            raise ValueError("sampling and beam search cannot be combined: leave out sampling or beam")


class GenerateKeywords(TypedDict, total=False):
    """The fields of `GenerateOptions` and of `Sampling` as keyword arguments, for the type checker. A test compares
    them."""

    sampling: Sampling | None
    seed: int | None
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    beam: int | None
    num_beams: int | None
    n_best: int
    length_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    max_new_tokens: int | None
    stop: Sequence[str]
    stop_on_repetition: bool
    control: str | None
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Generation(GeneratedText):
    """The continuation of one prompt."""

    alternatives: tuple[Generation, ...] = ()


def prepare(model: ModelParts, options: GenerateOptions) -> Generator:
    """Return a `Generator`; for an encoder-decoder, a `SourceGenerator`."""
    if model.network.reads is Reads.SOURCE_AND_TARGET:
        from regard.tasks.source_generator import SourceGenerator

        return SourceGenerator(model.network, model.tokenizer, model.generation_config, options)
    from regard.tasks.generator import Generator

    return Generator(model.network, model.tokenizer, model.generation_config, options)


def document_encoder(tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None) -> DocumentEncoder:
    """Return the encoder of documents. Without a policy, batching splits them into chunks."""
    from regard.data.encoders.documents import DocumentEncoder

    del labels
    return DocumentEncoder(tokenizer=tokenizer, length_policy=policy)


def for_objective(task: AnyTask, objective: Any) -> AnyTask:
    """Return the declaration for a recipe: causal language modelling trains decoders."""
    del objective
    return replace(task, reads=frozenset({Reads.TOKENS}))


GENERATE = Task(
    name="generate",
    summary="Generate a continuation of PROMPT with MODEL: one output line per input line, in order.",
    details="The output does not contain the prompt. With several prompts, a line break in an output is printed as "
    "\\n.",
    input=PROMPT,
    options=GenerateOptions,
    result=Generation,
    prepare=prepare,
    example=Document,
    reads=frozenset({Reads.TOKENS, Reads.SOURCE_AND_TARGET}),
    predicts=frozenset({Predicts.NEXT_TOKEN}),
    architectures=("LMHeadModel", "ForCausalLM"),
    objectives=("causal",),
    for_objective=for_objective,
    rows=Rows.PACKED,
    encoder=document_encoder,
    metrics=Metrics(names=("loss", "perplexity", "accuracy", "word_perplexity", "bits_per_character")),
)
