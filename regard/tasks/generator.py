"""The `Generator`: continue prompts with a decoder-only network."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs
from regard.generation.logits_processors import LogitsProcessor, MinP, Temperature, TopK, TopP
from regard.generation.result import DecodingResult
from regard.generation.running_batch import StreamEvent
from regard.generation.scheduler import BUFFER_SIZE, BatchSize, generate, stream
from regard.generation.search import RandomSampling, SearchStrategy
from regard.generation.stopping_criteria import Repetition, StoppingCriterion, StopString
from regard.tasks.detokenizer import Detokenizer, IncrementalDetokenizer
from regard.tasks.generate import GenerateOptions, Generation, Sampling
from regard.tasks.generation_config import GenerationConfig
from regard.tasks.inputs import check_iterable
from regard.tasks.sentences import CHARACTERS_PER_TOKEN
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.interface import GenerativeNetwork


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
        network: GenerativeNetwork,
        tokenizer: Tokenizer,
        generation_config: GenerationConfig,
        options: GenerateOptions,
    ) -> None:
        if options.sampling is not None:
            options = replace(options, sampling=options.sampling.with_seed())
        self.network, self.tokenizer, self.options = network, tokenizer, options
        self.detokenizer = Detokenizer(tokenizer)
        tokenizer.encode("", control=options.control)  # raises an error now if the control code is unknown
        self.bos_token_id = generation_config.bos_token_id
        _, limits = network.limits
        self.max_length = limits.max_positions or limits.context_length
        if options.repetition_penalty is not None:
            generation_config = replace(generation_config, repetition_penalty=options.repetition_penalty)
        if options.no_repeat_ngram_size is not None:
            generation_config = replace(generation_config, no_repeat_ngram_size=options.no_repeat_ngram_size)
        self.decoding_options = DecodingOptions(
            search=self._search_strategy(generation_config),
            eos_token_ids=generation_config.eos_token_ids,
            logits_processors=[
                *generation_config.logits_processors(options.max_new_tokens),
                *(sampling_processors(options.sampling) if options.sampling else []),
            ],
            stopping_criteria=self._stopping_criteria(),
            max_new_tokens=options.max_new_tokens,
        )
        self.batch_size = BatchSize(sequences=max(options.batch_size, self.decoding_options.search.beam))

    def _search_strategy(self, generation_config: GenerationConfig) -> SearchStrategy:
        if self.options.sampling is not None and self.options.sampling.seed is not None:
            return RandomSampling(seed=self.options.sampling.seed, num_samples=self.options.n_best)
        return generation_config.search_strategy(self.options.beam, self.options.n_best, self.options.length_penalty)

    def _stopping_criteria(self) -> list[StoppingCriterion]:
        criteria: list[StoppingCriterion] = (
            [StopString(self.options.stop, self.detokenizer.decode)] if self.options.stop else []
        )
        return [*criteria, Repetition()] if self.options.stop_on_repetition else criteria

    def run(self, inputs: Iterable[str], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Generation]:
        """Continue every prompt; results come in the order of the prompts, as soon as they are ready.

        `buffer_size` prompts are read at a time and sorted by length; with 1, each is finished before the next is read.
        """
        check_iterable(inputs)
        pending: deque[EncodedPrompt] = deque()
        prompts = self._make_inputs(inputs, pending)
        for result in generate(
            self.network, prompts, self.decoding_options, batch_size=self.batch_size, buffer_size=buffer_size
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
        num_removed, text = self._cut_long_text(text)
        encoding = self.tokenizer.encode(text, control=self.options.control)
        control_codes = self.tokenizer.control_codes
        if control_codes and (not encoding.ids or encoding.ids[0] not in control_codes.values()):
            available = ", ".join(sorted(control_codes))
            raise ValueError(f"this model requires a control code (--control); available: {available}")
        positions = [position for position, special in enumerate(encoding.special_tokens_mask) if not special]
        if positions:
            encoded = self._truncate_prompt(encoding.ids[: positions[-1] + 1], positions[0])
            return replace(encoded, truncated=encoded.truncated + num_removed)
        prefix = encoding.ids[:1] if control_codes else [] if self.bos_token_id is None else [self.bos_token_id]
        if not prefix:
            raise ValueError(
                "the tokenizer has no BOS token, so an empty prompt is not possible: give at least one word"
            )
        return EncodedPrompt(prefix, 0)

    def _cut_long_text(self, text: str) -> tuple[int, str]:
        """Return the end of a text that is far too long, and the number of tokens before it.

        They are counted in blocks: encoding megabytes by one call takes long, and Ctrl-C would have to wait for it.
        """
        if self.max_length is None:
            return 0, text
        block, start, num_tokens = CHARACTERS_PER_TOKEN * self.max_length, 0, 0
        while len(text) - start > 2 * block:
            end = text.rfind(" ", start + 1, start + block)
            end = start + block if end < 0 else end
            num_tokens += len(self.tokenizer.encode_batch_ids([text[start:end]], add_special_tokens=False)[0])
            start = end
        return num_tokens, text[start:]

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


def sampling_processors(sampling: Sampling) -> list[LogitsProcessor]:
    """Return the logits processors of random sampling."""
    processors: list[LogitsProcessor] = []
    if sampling.temperature != 1:
        processors.append(Temperature(sampling.temperature))
    if sampling.top_k is not None:
        processors.append(TopK(sampling.top_k))
    if sampling.top_p is not None:
        processors.append(TopP(sampling.top_p))
    if sampling.min_p is not None:
        processors.append(MinP(sampling.min_p))
    return processors
