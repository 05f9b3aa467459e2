"""The `Embedder`: vectors of texts, with an encoder and the pooling of its folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from regard.checkpoint.sentence_folder import SentenceEncoder
from regard.tasks.embed import EmbedOptions, TextVector, WordVector
from regard.tasks.encoder_runner import (
    EncoderRunner,
    PackedRows,
    TokenRow,
    encode_texts,
    max_row_length,
    process_in_buffers,
    split_to_windows,
    truncated_positions,
)
from regard.tasks.long_input import LongInput
from regard.tokenization.tokenizer import Encoding, Tokenizer
from regard.training.task import BUFFER_SIZE
from regard.transformer.config import Pooling
from regard.transformer.interface import Reads
from regard.transformer.text_embedder import TextEmbedder, TextEmbedding, drop_first_tokens

POOLINGS = {each.value: each for each in (Pooling.MEAN, Pooling.FIRST, Pooling.MAX, Pooling.LAST)}
INT8_MAX = 127


@dataclass(frozen=True)
class EmbeddedRow:
    """What the network gives for one row."""

    vector: Tensor
    """The vector of the row."""
    hidden: Tensor | None
    """The hidden state of each token, if the vectors of words are needed."""


class Embedder:
    """A network, its tokenizer and its pooling, ready to embed texts."""

    def __init__(
        self, network: Any, tokenizer: Tokenizer, sentence_encoder: SentenceEncoder | None, options: EmbedOptions
    ) -> None:
        self.is_dual = network.reads is Reads.TEXT_AND_IMAGE
        if self.is_dual and (options.tokens or options.pooling):
            raise ValueError("a network for texts and images has one vector for each text: remove tokens and pooling")
        encoder = sentence_encoder or SentenceEncoder(embedder=TextEmbedder(TextEmbedding()))
        self.encoder = encoder if options.pooling is None else _with_pooling(encoder, options.pooling)
        self.embedder = self.encoder.embedder.to(next(network.parameters()).device)
        self.network = network if self.is_dual else network.without_head()
        self.runner = EncoderRunner(self.network, options.batch_tokens)
        self.tokenizer, self.options = tokenizer, options
        self.prompt = _prompt_text(self.encoder, options.prompt)
        lengths = [max_row_length(network, tokenizer), self.encoder.max_length or tokenizer.model_max_length]
        self.max_length = min((length for length in lengths if length is not None), default=None)
        self.dropped_tokens = 0 if self.encoder.embedder.design.include_prompt else self._prompt_tokens()
        dim = self._output_dim()
        if options.truncate_dim is not None and options.truncate_dim > dim:
            raise ValueError(f"truncate_dim is {options.truncate_dim}, but the vectors have only {dim} numbers")

    def run(self, inputs: Iterable[str], *, buffer_size: int = BUFFER_SIZE) -> Iterator[TextVector]:
        """Embed every text; results come in the order of the texts."""
        return process_in_buffers(inputs, buffer_size, self._embed)

    def _embed(self, texts: Sequence[str]) -> Iterator[TextVector]:
        prefixed = [self.prompt + text for text in texts]
        if self.encoder.lowercase:
            prefixed = [text.lower() for text in prefixed]
        encodings = encode_texts(self.tokenizer, prefixed)
        windows = [self._windows(encoding) for encoding in encodings]
        rows = [
            TokenRow.of(encoding, positions)
            for encoding, (spans, _) in zip(encodings, windows, strict=True)
            for positions in spans
        ]
        embedded = iter(self.runner.map(rows, self._run_batch))
        for text, encoding, (spans, truncated) in zip(texts, encodings, windows, strict=True):
            parts = [next(embedded) for _ in spans]
            vector = self._finish(_weighted_mean([part.vector for part in parts], spans), len(parts) > 1)
            words = self._words(text, encoding, spans, parts) if self.options.tokens else ()
            yield make_text_vector(vector, self.options.int8, words=words, windows=len(parts), truncated=truncated)

    def _windows(self, encoding: Encoding) -> tuple[list[list[int]], int]:
        """Return the positions of the tokens of each row of a text, and the number of those that are in none."""
        if self.options.long is LongInput.MEAN:
            return split_to_windows(encoding, 0, self.max_length, overlap=0.0), 0
        positions, truncated = truncated_positions(encoding, self.max_length)
        return [positions], truncated

    def _run_batch(self, batch: PackedRows) -> list[EmbeddedRow]:
        if self.is_dual:
            vectors = self.network.embed_text(batch.tokens, layout=batch.layout)
            return [EmbeddedRow(vector, None) for vector in vectors.float().cpu()]
        hidden = batch.forward(self.network).hidden
        pooled, layout = hidden, batch.layout
        if self.dropped_tokens:
            counts = [min(self.dropped_tokens, length - 1) for length in layout.lengths]
            pooled, layout = drop_first_tokens(hidden, layout, counts)
        vectors = self.embedder(pooled.float(), layout).cpu()
        if not self.options.tokens:
            return [EmbeddedRow(vector, None) for vector in vectors]
        states = batch.split(hidden.float().cpu())
        return [EmbeddedRow(vector, hidden) for vector, hidden in zip(vectors, states, strict=True)]

    def _finish(self, vector: Tensor, is_mean: bool) -> Tensor:
        """Truncate and normalise a vector. A mean of several is normalised if each of them was."""
        if is_mean and (self.is_dual or self.embedder.design.is_normalized):
            vector = normalize(vector, dim=0)
        vector = vector[: self.options.truncate_dim]
        return normalize(vector, dim=0) if self.options.normalize else vector

    def _words(
        self, text: str, encoding: Encoding, spans: Sequence[Sequence[int]], parts: Sequence[EmbeddedRow]
    ) -> tuple[WordVector, ...]:
        """Return the mean of the hidden states of each word: of all tokens that overlap it."""
        shift = len(self.prompt)
        states: dict[int, Tensor] = {}
        for positions, part in zip(spans, parts, strict=True):
            assert part.hidden is not None
            for position, hidden in zip(positions, part.hidden, strict=True):
                if not encoding.special_tokens_mask[position]:
                    states.setdefault(position, hidden)
        words = []
        for match in re.finditer(r"\w+|[^\w\s]", text):
            start, end = match.span()
            inside = [
                hidden
                for position, hidden in states.items()
                if encoding.offsets[position][0] < end + shift and encoding.offsets[position][1] > start + shift
            ]
            if inside:  # words after the truncation have no vector
                vector = torch.stack(inside).mean(dim=0)
                words.append(WordVector(text=match.group(), start=start, end=end, vector=tuple(vector.tolist())))
        return tuple(words)

    def _prompt_tokens(self) -> int:
        """Return the number of tokens of the prompt, with the special tokens before it."""
        if not self.prompt:
            return 0
        encoding = self.tokenizer.encode(self.prompt)
        last = max((i for i, special in enumerate(encoding.special_tokens_mask) if not special), default=-1)
        return last + 1

    def _output_dim(self) -> int:
        if self.is_dual:
            return int(self.network.config.text.head.projection or self.network.model_dim)
        return self.embedder.design.output_dim(self.network.model_dim)


def _with_pooling(encoder: SentenceEncoder, name: str) -> SentenceEncoder:
    """Return an encoder with another pooling. Dense layers need the one that they were trained with."""
    _check_choice("pooling", name, tuple(POOLINGS))
    design = encoder.embedder.design
    if len(encoder.embedder.dense) and design.poolings != (POOLINGS[name],):
        raise ValueError("this model has dense layers after its pooling: leave out --pooling")
    return replace(encoder, embedder=TextEmbedder(replace(design, poolings=(POOLINGS[name],))))


def _prompt_text(encoder: SentenceEncoder, prompt: str | None) -> str:
    """Return the text of a prompt: by its name in the model, or literally."""
    name = encoder.default_prompt if prompt is None else prompt
    return "" if name is None else encoder.prompts.get(name, name)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; expected {', '.join(choices)}")


def _weighted_mean(vectors: Sequence[Tensor], spans: Sequence[Sequence[int]]) -> Tensor:
    """Return the mean of the vectors of windows, weighted by their numbers of tokens."""
    if len(vectors) == 1:
        return vectors[0]
    weights = torch.tensor([float(len(span)) for span in spans])
    return (torch.stack(list(vectors)) * (weights / weights.sum())[:, None]).sum(dim=0)


def make_text_vector(
    vector: Tensor, int8: bool, *, words: tuple[WordVector, ...] = (), windows: int = 1, truncated: int = 0
) -> TextVector:
    """Return the result for one vector; with `int8`, its numbers divided by a scale and rounded."""
    if not int8:
        return TextVector(vector=tuple(vector.tolist()), words=words, windows=windows, truncated=truncated)
    values = vector.numpy()
    scale = float(np.abs(values).max()) / INT8_MAX or 1.0
    rounded = np.rint(values / scale).astype(np.int64)
    return TextVector(vector=tuple(rounded.tolist()), scale=scale, words=words, windows=windows, truncated=truncated)
