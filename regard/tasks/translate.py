"""Translation, summarization and other tasks from text to text, with an encoder-decoder network."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from typing import TypedDict

from torch import nn

from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs, OverlongInput, length_limits
from regard.generation.result import DecodingResult, Hypothesis
from regard.generation.running_batch import StreamEvent
from regard.generation.scheduler import BUFFER_SIZE, BatchSize, generate, stream
from regard.tasks.attention_alignment import Alignment, align, token_spans
from regard.tasks.generation_config import GenerationConfig
from regard.tasks.results import EMPTY_TRANSLATION, Detokenizer, IncrementalDetokenizer, Translation, join_chunks
from regard.tasks.sentences import Span, split_to_fit
from regard.tasks.translation_direction import translation_direction
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer import config
from regard.transformer.network import DecoderOnly, EncoderDecoder

BATCH_ELEMENTS, MIN_BATCH_SIZE, MAX_BATCH_SIZE = 32768, 16, 96
"""The default batch size is 32,768 / model_dim sequences, but at least 16 and at most 96. A narrow network needs more
sequences until its matrix products dominate the time of a step."""


@dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """Options of translation. The default of the beam size and of the penalty is in the model's generation config."""

    source_language: str | None = None
    """Language code of the source, for multilingual models."""
    target_language: str | None = None
    """Language code of the target, for multilingual models."""
    prefix: str | None = None
    """Text before every source, literal or by the name of its task (T5: "summarize: ", or summarization)."""
    beam: int | None = None
    """Beam size; 1 is greedy search."""
    n_best: int = 1
    """Number of hypotheses for each text."""
    length_penalty: float | None = None
    """Exponent of the length in the score of a beam search; above 1 favours longer outputs."""
    max_new_tokens: int | None = None
    """Maximum number of new tokens. Default: 4 × source length + 64, limited by the positions of the network."""
    target_prefix: str = ""
    """Text that every target starts with."""
    alignment: bool = False
    """Compute the word alignment from the cross-attention."""
    batch_size: int | None = None
    """Number of sequences that are decoded in one batch; a beam search needs `beam` for each text. Default: derived
    from the width of the network (`BATCH_ELEMENTS`)."""


class TranslateKeywords(TypedDict, total=False):
    """The fields of `TranslateOptions` as keyword arguments of `Model.translate`."""

    source_language: str | None
    target_language: str | None
    prefix: str | None
    beam: int | None
    num_beams: int | None
    """Another name for `beam`."""
    n_best: int
    length_penalty: float | None
    max_new_tokens: int | None
    target_prefix: str
    alignment: bool
    batch_size: int | None


@dataclass(frozen=True)
class SourceChunk:
    """A chunk of a source text: the whole text, or as many sentences as fit the network."""

    text: str
    """The whole text."""
    start: int
    """Start of the chunk in the text, in characters."""
    end: int
    """End of the chunk in the text."""
    ids: list[int]
    """The tokens of the chunk, with those of the prefix."""
    is_last: bool
    """Whether this is the last chunk of the text."""


PendingChunks = deque[tuple[int, SourceChunk | None]]
"""The chunks whose results are not ready yet, each with the number of empty texts before it; the last entry is None."""


class Translator:
    """An encoder-decoder network and its tokenizer, ready to translate."""

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Tokenizer,
        generation_config: GenerationConfig,
        options: TranslateOptions,
    ) -> None:
        if not isinstance(network, EncoderDecoder):
            hint = "; for this decoder-only network use `generate`" if isinstance(network, DecoderOnly) else ""
            raise ValueError(f"translate needs an encoder-decoder network{hint}")
        self.tokenizer, self.detokenizer = tokenizer, Detokenizer(tokenizer.target)
        self.direction = translation_direction(
            tokenizer, generation_config, options.source_language, options.target_language, options.prefix
        )
        self._set_target_prefix(options.target_prefix, self.direction.generation_config)
        self.network = network
        limits, _ = length_limits(network)
        assert limits is not None
        self.max_source_length = limits.max_positions or limits.context_length or tokenizer.model_max_length
        self.alignment_address = _alignment_address(network) if options.alignment else None
        self.decoding_options = DecodingOptions(
            search=self.generation_config.search_strategy(options.beam, options.n_best, options.length_penalty),
            eos_token_ids=self.generation_config.eos_token_ids,
            logits_processors=self.generation_config.logits_processors(options.max_new_tokens),
            max_new_tokens=options.max_new_tokens,
            overlong_input=OverlongInput.TRUNCATE,
            capture=[self.alignment_address] if self.alignment_address else [],
        )
        assert isinstance(network.config, config.EncoderDecoder)
        default_size = max(MIN_BATCH_SIZE, min(MAX_BATCH_SIZE, BATCH_ELEMENTS // network.config.model_dim))
        self.batch_size = BatchSize(
            sequences=max(options.batch_size or default_size, self.decoding_options.search.beam)
        )

    def _set_target_prefix(self, text: str, generation_config: GenerationConfig) -> None:
        """Set the first tokens of every target: the decoder start token, a forced BOS token, and the target prefix."""
        start = generation_config.decoder_start_token_id
        if start is None:
            raise ValueError("decoder_start_token_id is missing: set it in generation_config.json")
        self.target_prefix_ids: list[int] = (
            self.tokenizer.target.encode(text, add_special_tokens=False).ids if text else []
        )
        forced = generation_config.forced_bos_token_id
        if self.target_prefix_ids and forced is not None:
            self.target_prefix_ids = [forced, *self.target_prefix_ids]
            generation_config = replace(generation_config, forced_bos_token_id=None)
        self.generation_config, self.decoder_prompt = generation_config, [start, *self.target_prefix_ids]

    def translate(self, texts: Iterable[str], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Translation]:
        """Translate every text; results come in the order of the texts, as soon as they are ready.

        A text that is too long for the network is translated in chunks of whole sentences. The translation of an empty
        text is empty. `buffer_size` texts are read at a time and sorted by length, and an eighth of them is tokenized
        at a time; with 1, each text is finished before the next is read.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a single string: pass a list of strings, or use Model.translate")
        return self._translate(texts, buffer_size)

    def _translate(self, texts: Iterable[str], buffer_size: int) -> Iterator[Translation]:
        pending: PendingChunks = deque()
        inputs = self._make_inputs(texts, pending, buffer_size // 8)
        results = generate(
            self.network, inputs, self.decoding_options, batch_size=self.batch_size, buffer_size=buffer_size
        )
        translations: list[Translation] = []
        for result in chain(results, [None]):
            num_empty, chunk = pending.popleft()
            yield from repeat(EMPTY_TRANSLATION, num_empty)
            if chunk is None or result is None:
                return
            translations.append(self._translation(chunk, result))
            if chunk.is_last:
                yield join_chunks(translations)
                translations = []

    def stream(self, text: str) -> Iterator[str | Translation]:
        """Translate one text: yield parts of the translation as soon as they can no longer change, then the result."""
        translations: list[Translation] = []
        (chunks,) = self._chunks([text])
        for chunk in chunks:
            if translations:
                yield " "
            incremental = IncrementalDetokenizer(self._decode, self.detokenizer.is_incomplete)
            for event in stream(
                self.network, [self._chunk_inputs(chunk)], self.decoding_options, batch_size=self.batch_size
            ):
                if isinstance(event, StreamEvent):
                    yield incremental.add(event.tokens)
                else:
                    translations.append(self._translation(chunk, event))
                    yield incremental.flush(translations[-1].text)
        yield join_chunks(translations) if translations else EMPTY_TRANSLATION

    def _make_inputs(self, texts: Iterable[str], pending: PendingChunks, tokenize_batch: int) -> Iterator[Inputs]:
        """Yield the inputs of all chunks; append each chunk to `pending`. Tokenize `tokenize_batch` texts at a time."""
        num_empty, texts = 0, iter(texts)
        while batch := list(islice(texts, max(tokenize_batch, 1))):
            for chunks in self._chunks(batch):
                num_empty += not chunks
                for chunk in chunks:
                    pending.append((num_empty, chunk))
                    num_empty = 0
                    yield self._chunk_inputs(chunk)
        pending.append((num_empty, None))

    def _chunks(self, texts: Sequence[str]) -> Iterator[list[SourceChunk]]:
        """Yield the chunks of each text: one if the text fits the network, none if it is empty."""
        for text, ids in zip(texts, self._encode(texts), strict=True):
            spans, encoded = [(0, len(text))], [ids]
            if self.max_source_length is not None and len(ids) > self.max_source_length:
                spans = split_to_fit(text, self._fits)
                encoded = self._encode([text[start:end] for start, end in spans])
            chunks = [(*span, ids) for span, ids in zip(spans, encoded, strict=True) if ids and text.strip()]
            yield [SourceChunk(text, *chunk, count == len(chunks)) for count, chunk in enumerate(chunks, 1)]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_batch_ids(
            [self.direction.source_prefix + text for text in texts], language=self.direction.tokenizer_language
        )

    def _fits(self, text: str) -> bool:
        return self.max_source_length is None or len(self._encode([text])[0]) <= self.max_source_length

    def _chunk_inputs(self, chunk: SourceChunk) -> Inputs:
        return Inputs(prompt=self.decoder_prompt, source=chunk.ids)

    def _decode(self, tokens: Sequence[int]) -> str:
        return self.detokenizer.decode([*self.target_prefix_ids, *tokens])

    def _translation(self, chunk: SourceChunk, result: DecodingResult) -> Translation:
        spans = self._token_spans(chunk) if self.alignment_address else []
        best, *alternatives = (
            self._hypothesis_result(chunk, spans, result, hypothesis) for hypothesis in result.hypotheses
        )
        return replace(best, alternatives=tuple(alternatives))

    def _hypothesis_result(
        self, chunk: SourceChunk, spans: Sequence[Span], result: DecodingResult, hypothesis: Hypothesis
    ) -> Translation:
        translation = self.detokenizer.make_result(Translation, hypothesis, result, self._decode(hypothesis.tokens))
        if not self.alignment_address:
            return translation
        return replace(translation, alignment=self._word_alignment(chunk, spans, hypothesis, translation.text))

    def _token_spans(self, chunk: SourceChunk) -> list[Span]:
        """Return the spans of the source tokens in the whole text; tokens of the prefix get an empty span."""
        prefix = self.direction.source_prefix
        text = prefix + chunk.text[chunk.start : chunk.end]
        offsets = self.tokenizer.encode(text, language=self.direction.tokenizer_language).offsets
        shift = chunk.start - len(prefix)
        return [
            (max(start, len(prefix)) + shift, end + shift) if end > len(prefix) else (0, 0) for start, end in offsets
        ]

    def _word_alignment(
        self, chunk: SourceChunk, spans: Sequence[Span], hypothesis: Hypothesis, text: str
    ) -> Alignment:
        attention = hypothesis.mean_attention(self.alignment_address)
        # A truncated source has lost tokens before its last one: they have no attention weights.
        source_spans = [*spans[: attention.shape[1] - 1], spans[-1]]
        target_spans = token_spans([*self.target_prefix_ids, *hypothesis.tokens], self.detokenizer.decode)
        return align(attention, source_spans, chunk.text, target_spans[len(self.target_prefix_ids) :], text)


def _alignment_address(network: EncoderDecoder) -> str:
    """Return the address of the cross-attention of the penultimate block.

    Its weights align words best in networks of the usual depth (Garg et al. 2019).
    """
    layers = len(network.decoder.blocks)
    return f"decoder.blocks.{max(0, layers - 2)}.cross_attention"
