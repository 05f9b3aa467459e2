"""Generation: continue prompts with a decoder-only network."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

from torch import nn

from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs, length_limits
from regard.generation.logits_processors import LogitsProcessor, MinP, Temperature, TopK, TopP
from regard.generation.result import DecodingResult
from regard.generation.running_batch import StreamEvent
from regard.generation.scheduler import BUFFER_SIZE, BatchSize, generate, stream
from regard.generation.search import RandomSampling, SearchStrategy
from regard.generation.stopping_criteria import Repetition, StoppingCriterion, StopString
from regard.tasks.generation_config import GenerationConfig
from regard.tasks.results import Detokenizer, Generation, IncrementalDetokenizer
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.network import DecoderOnly, EncoderDecoder
from regard.transformer.two_stream import TwoStream


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Random sampling instead of greedy or beam search."""

    seed: int = 0
    """The same seed and prompt give the same text."""
    temperature: float = 1.0
    """Softmax temperature."""
    top_k: int | None = None
    """Sample from the k most likely tokens."""
    top_p: float | None = None
    """Sample from the most likely tokens whose probabilities add up to p (nucleus sampling)."""
    min_p: float | None = None
    """Sample from tokens that are at least p times as likely as the most likely one."""

    def logits_processors(self) -> list[LogitsProcessor]:
        """Return the logits processors for these values."""
        processors: list[LogitsProcessor] = []
        if self.temperature != 1:
            processors.append(Temperature(self.temperature))
        if self.top_k is not None:
            processors.append(TopK(self.top_k))
        if self.top_p is not None:
            processors.append(TopP(self.top_p))
        if self.min_p is not None:
            processors.append(MinP(self.min_p))
        return processors


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """Options of generation. The default of the beam size and of the penalties is in the model's generation config."""

    sampling: Sampling | None = None
    """Sample instead of greedy or beam search."""
    beam: int | None = None
    """Beam size; 1 is greedy search."""
    n_best: int = 1
    """Number of outputs for each prompt: the best hypotheses of the beam, or independent samples."""
    length_penalty: float | None = None
    """Exponent of the length in the score of a beam search; above 1 favours longer outputs."""
    repetition_penalty: float | None = None
    """Above 1, tokens that already occurred become less likely (Keskar et al. 2019)."""
    no_repeat_ngram_size: int | None = None
    """No n-gram of this size occurs twice."""
    max_new_tokens: int | None = None
    """Maximum number of new tokens. Default: the rest of the context length, or 1024 if the network has none."""
    stop: Sequence[str] = ()
    """Stop strings; the output ends with the first one that is generated."""
    stop_on_repetition: bool = False
    """Stop when the output repeats itself: the same n-gram of at most 8 tokens, 4 times in a row."""
    control: str | None = None
    """Name of a control code (CTRL)."""
    batch_size: int = 16
    """Number of sequences that are decoded in one batch."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", tuple(self.stop))
        if self.sampling is not None and self.beam is not None:
            raise ValueError("sampling and beam search cannot be combined: leave out sampling or beam")


class GenerateKeywords(TypedDict, total=False):
    """The fields of `GenerateOptions` as keyword arguments of `Model.generate`."""

    sampling: Sampling | None
    beam: int | None
    num_beams: int | None
    """Another name for `beam`."""
    n_best: int
    length_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    max_new_tokens: int | None
    stop: Sequence[str]
    stop_on_repetition: bool
    control: str | None
    batch_size: int


@dataclass(frozen=True)
class EncodedPrompt:
    """The tokens of a prompt."""

    tokens: list[int]
    truncated: int
    """Number of tokens that were removed because the prompt was too long."""


class Generator:
    """A decoder-only network and its tokenizer, ready to continue prompts."""

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Tokenizer,
        generation_config: GenerationConfig,
        options: GenerateOptions,
    ) -> None:
        if not isinstance(network, DecoderOnly | TwoStream):
            hint = "; for this encoder-decoder use `translate`" if isinstance(network, EncoderDecoder) else ""
            raise ValueError(f"generate needs a decoder-only network{hint}")
        self.network, self.tokenizer, self.options = network, tokenizer, options
        self.detokenizer = Detokenizer(tokenizer)
        tokenizer.encode("", control=options.control)  # raises an error now if the control code is unknown
        self.bos_token_id = generation_config.bos_token_id
        _, limits = length_limits(network)
        self.max_length = limits.max_positions or (limits.context_length if options.max_new_tokens is None else None)
        if options.repetition_penalty is not None:
            generation_config = replace(generation_config, repetition_penalty=options.repetition_penalty)
        if options.no_repeat_ngram_size is not None:
            generation_config = replace(generation_config, no_repeat_ngram_size=options.no_repeat_ngram_size)
        self.decoding_options = DecodingOptions(
            search=self._search_strategy(generation_config),
            eos_token_ids=generation_config.eos_token_ids,
            logits_processors=[
                *generation_config.logits_processors(options.max_new_tokens),
                *(options.sampling.logits_processors() if options.sampling else []),
            ],
            stopping_criteria=self._stopping_criteria(),
            max_new_tokens=options.max_new_tokens,
        )
        self.batch_size = BatchSize(sequences=max(options.batch_size, self.decoding_options.search.beam))

    def _search_strategy(self, generation_config: GenerationConfig) -> SearchStrategy:
        if self.options.sampling is not None:
            return RandomSampling(seed=self.options.sampling.seed, num_samples=self.options.n_best)
        return generation_config.search_strategy(self.options.beam, self.options.n_best, self.options.length_penalty)

    def _stopping_criteria(self) -> list[StoppingCriterion]:
        criteria: list[StoppingCriterion] = (
            [StopString(self.options.stop, self.detokenizer.decode)] if self.options.stop else []
        )
        return [*criteria, Repetition()] if self.options.stop_on_repetition else criteria

    def generate(self, prompts: Iterable[str], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Generation]:
        """Continue every prompt; results come in the order of the prompts, as soon as they are ready.

        `buffer_size` prompts are read at a time and sorted by length; with 1, each is finished before the next is read.
        """
        if isinstance(prompts, str):
            raise ValueError("prompts is a single string: pass a list of strings, or use Model.generate")
        return self._generate(prompts, buffer_size)

    def _generate(self, prompts: Iterable[str], buffer_size: int) -> Iterator[Generation]:
        pending: deque[EncodedPrompt] = deque()
        inputs = self._make_inputs(prompts, pending)
        for result in generate(
            self.network, inputs, self.decoding_options, batch_size=self.batch_size, buffer_size=buffer_size
        ):
            yield self._generation(pending.popleft(), result)

    def stream(self, prompt: str) -> Iterator[str | Generation]:
        """Continue one prompt: yield parts of the text as soon as they can no longer change, then the result."""
        encoded = self._encode_prompt(prompt)
        incremental = IncrementalDetokenizer(
            partial(self.detokenizer.decode_continuation, encoded.tokens), self.detokenizer.is_incomplete
        )
        for event in stream(
            self.network, [Inputs(prompt=encoded.tokens)], self.decoding_options, batch_size=self.batch_size
        ):
            if isinstance(event, StreamEvent):
                if event.sample_index == 0:
                    yield incremental.add(event.tokens)
            else:
                result = self._generation(encoded, event)
                yield incremental.flush(result.text)
                yield result

    def _make_inputs(self, prompts: Iterable[str], pending: deque[EncodedPrompt]) -> Iterator[Inputs]:
        for prompt in prompts:
            pending.append(self._encode_prompt(prompt))
            yield Inputs(prompt=pending[-1].tokens)

    def _encode_prompt(self, text: str) -> EncodedPrompt:
        """Encode a prompt, with the special tokens that the tokenizer adds before the text, without those after it."""
        encoding = self.tokenizer.encode(text, control=self.options.control)
        control_codes = self.tokenizer.control_codes
        if control_codes and (not encoding.ids or encoding.ids[0] not in control_codes.values()):
            available = ", ".join(sorted(control_codes))
            raise ValueError(f"this model requires a control code (--control); available: {available}")
        positions = [position for position, special in enumerate(encoding.special_tokens_mask) if not special]
        if positions:
            return self._truncate_prompt(encoding.ids[: positions[-1] + 1], positions[0])
        prefix = encoding.ids[:1] if control_codes else [] if self.bos_token_id is None else [self.bos_token_id]
        if not prefix:
            raise ValueError(
                "the tokenizer has no BOS token, so an empty prompt is not possible: give at least one word"
            )
        return EncodedPrompt(prefix, 0)

    def _truncate_prompt(self, tokens: list[int], prefix_length: int) -> EncodedPrompt:
        """Shorten a prompt that leaves no positions for new tokens.

        The special tokens before the text and the last words stay, so that half of the positions is left for new
        tokens, or `max_new_tokens` if that is less.
        """
        if self.max_length is None or len(tokens) < self.max_length:
            return EncodedPrompt(tokens, 0)
        new_length = self.max_length - min(self.options.max_new_tokens or self.max_length, self.max_length // 2)
        kept = [*tokens[:prefix_length], *tokens[len(tokens) - new_length + prefix_length :]]
        return EncodedPrompt(kept, len(tokens) - new_length)

    def _generation(self, prompt: EncodedPrompt, result: DecodingResult) -> Generation:
        result = replace(result, truncated=result.truncated + prompt.truncated)
        best, *alternatives = (
            self.detokenizer.make_result(
                Generation, hypothesis, result, self.detokenizer.decode_continuation(prompt.tokens, hypothesis.tokens)
            )
            for hypothesis in result.hypotheses
        )
        return replace(best, alternatives=tuple(alternatives))
