"""The `Translator`: translation, summarization and other tasks from text to text, with an encoder-decoder."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat

from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs, OverlongInput
from regard.generation.result import DecodingResult, Hypothesis
from regard.generation.running_batch import StreamEvent
from regard.generation.scheduler import BUFFER_SIZE, BatchSize, generate, stream
from regard.tasks.attention_alignment import align, token_spans, word_spans
from regard.tasks.detokenizer import Detokenizer, IncrementalDetokenizer
from regard.tasks.generation_config import GenerationConfig
from regard.tasks.inputs import check_iterable
from regard.tasks.sentences import CHARACTERS_PER_TOKEN, Span, split_to_fit
from regard.tasks.translate import Alignment, TranslateOptions, Translation
from regard.tasks.translation_direction import translation_direction
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.interface import GenerativeNetwork

BATCH_ELEMENTS, MIN_BATCH_SIZE, MAX_BATCH_SIZE = 32768, 16, 96
"""The default batch size is 32,768 / model_dim sequences, but at least 16 and at most 96. A narrow network needs more
sequences until its matrix products dominate the time of a step."""


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
        network: GenerativeNetwork,
        tokenizer: Tokenizer,
        generation_config: GenerationConfig,
        options: TranslateOptions,
    ) -> None:
        self.tokenizer, self.detokenizer = tokenizer, Detokenizer(tokenizer.target)
        self.direction = translation_direction(
            tokenizer, generation_config, options.source_language, options.target_language, options.prefix
        )
        self._set_target_prefix(options.target_prefix, self.direction.generation_config)
        self.network = network
        limits, _ = network.limits
        assert limits is not None, "the network reads a source"
        self.max_source_length = limits.max_positions or limits.context_length or tokenizer.model_max_length
        self.alignment_address = network.alignment_address if options.alignment else None
        self.decoding_options = DecodingOptions(
            search=self.generation_config.search_strategy(options.beam, options.n_best, options.length_penalty),
            eos_token_ids=self.generation_config.eos_token_ids,
            logits_processors=self.generation_config.logits_processors(options.max_new_tokens),
            max_new_tokens=options.max_new_tokens,
            overlong_input=OverlongInput.TRUNCATE,
            capture=[self.alignment_address] if self.alignment_address else [],
        )
        default_size = max(MIN_BATCH_SIZE, min(MAX_BATCH_SIZE, BATCH_ELEMENTS // network.model_dim))
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

    def run(self, inputs: Iterable[str], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Translation]:
        """Translate every text; results come in the order of the texts, as soon as they are ready.

        A text that is too long for the network is translated in chunks of whole sentences. The translation of an empty
        text is empty. `buffer_size` texts are read at a time and sorted by length, and an eighth of them is tokenized
        at a time; with 1, each text is finished before the next is read.
        """
        check_iterable(inputs)
        pending: PendingChunks = deque()
        sources = self._make_inputs(inputs, pending, buffer_size // 8)
        results = generate(
            self.network, sources, self.decoding_options, batch_size=self.batch_size, buffer_size=buffer_size
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
        (ids,) = self._encode_short([text])
        for chunk in self._chunks(text, ids):
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
            for text, ids in zip(batch, self._encode_short(batch), strict=True):
                is_empty = True
                for chunk in self._chunks(text, ids):
                    pending.append((num_empty, chunk))
                    num_empty, is_empty = 0, False
                    yield self._chunk_inputs(chunk)
                num_empty += is_empty
        pending.append((num_empty, None))

    def _encode_short(self, texts: Sequence[str]) -> Iterator[list[int] | None]:
        """Yield the ids of texts; None for a text that is certainly too long, which is never encoded as a whole."""
        short = [not self._is_long(text) for text in texts]
        encoded = iter(self._encode([text for text, is_short in zip(texts, short, strict=True) if is_short]))
        yield from (next(encoded) if is_short else None for is_short in short)

    def _chunks(self, text: str, ids: list[int] | None) -> Iterator[SourceChunk]:
        """Yield the chunks of a text: one if it fits the network, none if it is empty."""
        if ids is not None and (self.max_source_length is None or len(ids) <= self.max_source_length):
            if ids and text.strip():
                yield SourceChunk(text, 0, len(text), ids, True)
            return
        previous: tuple[int, int, list[int]] | None = None
        for start, end in split_to_fit(text, self._fits):
            if previous is not None:
                yield SourceChunk(text, *previous, False)
            previous = start, end, self._encode([text[start:end]])[0]
        if previous is not None:
            yield SourceChunk(text, *previous, True)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_batch_ids(
            [self.direction.source_prefix + text for text in texts], language=self.direction.tokenizer_language
        )

    def _fits(self, text: str) -> bool:
        limit = self.max_source_length
        return limit is None or (not self._is_long(text) and len(self._encode([text])[0]) <= limit)

    def _is_long(self, text: str) -> bool:
        return self.max_source_length is not None and len(text) > CHARACTERS_PER_TOKEN * self.max_source_length

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


EMPTY_TRANSLATION = Translation(text="", score=0.0, stopped="end", chunks=0)
"""The translation of an empty text."""


def join_chunks(chunks: Sequence[Translation]) -> Translation:
    """Join the translations of the chunks of one text."""
    if len(chunks) == 1:
        return chunks[0]
    num_alternatives = min(len(chunk.alternatives) for chunk in chunks)
    return Translation(
        text=" ".join(chunk.text for chunk in chunks),
        score=sum(chunk.score for chunk in chunks),
        stopped=next((chunk.stopped for chunk in chunks if chunk.stopped != "end"), "end"),
        max_new_tokens=max(chunk.max_new_tokens for chunk in chunks),
        truncated=sum(chunk.truncated for chunk in chunks),
        chunks=len(chunks),
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        token_scores=tuple(score for chunk in chunks for score in chunk.token_scores),
        alignment=_join_alignments(chunks),
        alternatives=tuple(join_chunks([chunk.alternatives[n] for chunk in chunks]) for n in range(num_alternatives)),
    )


def _join_alignments(chunks: Sequence[Translation]) -> Alignment | None:
    """Join the alignments; source words already have their index in the whole text, target words that in the chunk."""
    pairs: list[tuple[int, int]] = []
    offset = 0
    for chunk in chunks:
        if chunk.alignment is None:
            return None
        pairs += [(source, offset + target) for source, target in chunk.alignment]
        offset += len(word_spans(chunk.text))
    return tuple(pairs)
