"""The `SourceGenerator`: text for a source, with an encoder-decoder and all options of generation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from regard.generation.inputs import Inputs, OverlongInput
from regard.generation.result import DecodingResult
from regard.generation.running_batch import StreamEvent
from regard.generation.scheduler import stream
from regard.tasks.detokenizer import Detokenizer, IncrementalDetokenizer
from regard.tasks.generate import GenerateOptions, Generation
from regard.tasks.generation_config import GenerationConfig
from regard.tasks.generator import EncodedPrompt, Generator
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.interface import GenerativeNetwork


class SourceGenerator(Generator):
    """An encoder-decoder network and its tokenizer, ready to generate. The prompt is the source."""

    def __init__(
        self,
        network: GenerativeNetwork,
        tokenizer: Tokenizer,
        generation_config: GenerationConfig,
        options: GenerateOptions,
    ) -> None:
        super().__init__(network, tokenizer, generation_config, options)
        if generation_config.decoder_start_token_id is None:
            raise ValueError("decoder_start_token_id is missing: set it in generation_config.json")
        self.detokenizer = Detokenizer(tokenizer.target)
        self.decoder_prompt = [generation_config.decoder_start_token_id]
        self.decoding_options = replace(self.decoding_options, overlong_input=OverlongInput.TRUNCATE)

    def stream(self, prompt: str) -> Iterator[str | Generation]:
        """Generate for one source: yield parts of the text as soon as they can no longer change, then the result."""
        encoded = self._encode_prompt(prompt)
        incremental = IncrementalDetokenizer(self.detokenizer.decode, self.detokenizer.is_incomplete)
        inputs = [Inputs(prompt=self.decoder_prompt, source=encoded.tokens)]
        for event in stream(self.network, inputs, self.decoding_options, batch_size=self.batch_size):
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
            yield Inputs(prompt=self.decoder_prompt, source=pending[-1].tokens)

    def _encode_prompt(self, text: str) -> EncodedPrompt:
        """Encode a source with all its special tokens. The search truncates one that is too long."""
        tokens = self.tokenizer.encode(text).ids
        if not tokens:
            raise ValueError("a prompt has no tokens: the network needs at least one")
        return EncodedPrompt(tokens, 0)

    def _generation(self, prompt: EncodedPrompt, result: DecodingResult) -> Generation:
        del prompt
        best, *alternatives = (
            self.detokenizer.make_result(Generation, hypothesis, result, self.detokenizer.decode(hypothesis.tokens))
            for hypothesis in result.hypotheses
        )
        return replace(best, alternatives=tuple(alternatives))
