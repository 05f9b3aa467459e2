"""The `Tagger`: the tags of the words of a text, and the entities that they mark, with a token classification head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.encoders.tags import NO_WORD, word_ids
from regard.data.formats import Scheme
from regard.data.tag_schemes import OUTSIDE
from regard.metrics.entity_metrics import entities
from regard.tasks.encoder_runner import (
    EncoderRunner,
    TokenRow,
    distance_to_edge,
    encode_texts,
    max_row_length,
    process_in_buffers,
    split_to_windows,
)
from regard.tasks.sentences import Span
from regard.tasks.tag import Entity, Tagging, TagOptions, Words
from regard.tasks.tag_decoding import allowed_transitions, decode_tags, scheme_of_labels
from regard.tasks.word_split import split_at_spaces, split_words
from regard.tokenization.tokenizer import Tokenizer
from regard.training.task import BUFFER_SIZE


@dataclass(frozen=True)
class SplitText:
    """A text and the spans of its words."""

    text: str
    spans: list[Span]

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self.text[start:end] for start, end in self.spans]

    @classmethod
    def of_words(cls, words: Words) -> SplitText:
        """Join words by spaces."""
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        spans = [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]
        return cls(" ".join(words), spans)


class Tagger:
    """A network with a token classification head, its tokenizer and its labels, ready to tag."""

    def __init__(self, network: Any, tokenizer: Tokenizer, labels: Sequence[str], options: TagOptions) -> None:
        self.runner = EncoderRunner(network, options.batch_tokens)
        self.tokenizer, self.options = tokenizer, options
        self.max_length = max_row_length(network, tokenizer)
        self.labels = tuple(labels) or tuple(f"LABEL_{index}" for index in range(network.num_labels))
        if len(self.labels) != network.num_labels:
            raise ValueError(f"the model has {len(self.labels)} label names for {network.num_labels} logits")
        self.scheme = scheme_of_labels(self.labels) if options.scheme is None else Scheme(options.scheme)
        self.allowed = allowed_transitions(self.labels, self.scheme)

    def run(self, inputs: Iterable[str | Words], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Tagging]:
        """Tag every text; results come in the order of the inputs. A tuple of strings is a text of these words.

        A text that is too long for the network is read in windows that overlap by half. A word in several windows has
        the scores of the window with the most context around it, and the whole text is decoded as one sequence.
        """
        return process_in_buffers(inputs, buffer_size, self._tag)

    def _tag(self, texts: Sequence[str | Words]) -> Iterator[Tagging]:
        split_texts = [self._split(text) for text in texts]
        encodings = encode_texts(self.tokenizer, [" ".join(split.words) for split in split_texts])
        windows = [split_to_windows(encoding, 0, self.max_length) for encoding in encodings]
        has_words = [bool(split.spans) for split in split_texts]
        rows = [
            TokenRow.of(encoding, positions)
            for encoding, each, words in zip(encodings, windows, has_words, strict=True)
            for positions in each
            if words
        ]
        logits = iter(self.runner.token_logits(rows))
        for split, encoding, each in zip(split_texts, encodings, windows, strict=True):
            scores = WordScores(len(split.spans), len(self.labels))
            words = word_ids(encoding, split.words) if split.spans else []
            for positions in each if split.spans else ():
                scores.add_window([words[position] for position in positions], next(logits).log_softmax(dim=-1))
            yield self._tagging(split, scores, len(each))

    def _split(self, text: str | Words) -> SplitText:
        if not isinstance(text, str):
            return SplitText.of_words(text)
        return SplitText(text, split_at_spaces(text) if self.options.words else split_words(text))

    def _tagging(self, split: SplitText, scores: WordScores, num_windows: int) -> Tagging:
        """Decode the tags. A word without tokens, such as a single control character, is outside of all entities."""
        if not split.spans:
            return Tagging(words=(), tags=(), scores=(), entities=())
        outside = self.labels.index(OUTSIDE) if OUTSIDE in self.labels else None
        if outside is not None:
            scores.fill_missing(outside)
        indices = decode_tags(scores.values, self.allowed)
        tags = [self.labels[index] for index in indices]
        probabilities = np.exp(scores.values[np.arange(len(indices)), indices]).tolist()
        return Tagging(
            words=tuple(split.words),
            tags=tuple(tags),
            scores=tuple(probabilities),
            entities=tuple(self._entities(split, tags, probabilities)),
            windows=num_windows,
        )

    def _entities(self, split: SplitText, tags: Sequence[str], probabilities: Sequence[float]) -> Iterator[Entity]:
        for entity_type, first, last in entities(tags) if self.scheme is not Scheme.PLAIN else ():
            start, end = split.spans[first][0], split.spans[last][1]
            score = sum(probabilities[first : last + 1]) / (last + 1 - first)
            yield Entity(type=entity_type, text=split.text[start:end], start=start, end=end, score=score)


class WordScores:
    """The log-probabilities of the tags of each word of a text, from the windows in which it has the most context."""

    def __init__(self, num_words: int, num_labels: int) -> None:
        self.values = np.full((num_words, num_labels), -np.log(num_labels))
        self.margins = np.full(num_words, -1)

    def add_window(self, words: Sequence[int], log_probabilities: Tensor) -> None:
        """Add the scores of a window: those of the first token of each word."""
        previous = NO_WORD
        chosen: list[tuple[int, int]] = []
        for position, word in enumerate(words):
            if word in (NO_WORD, previous):
                continue
            previous, margin = word, distance_to_edge(position, len(words))
            if margin > self.margins[word]:
                self.margins[word] = margin
                chosen.append((word, position))
        if chosen:
            word_indices, positions = zip(*chosen, strict=True)
            self.values[list(word_indices)] = log_probabilities[torch.tensor(positions)].numpy()

    def fill_missing(self, label: int) -> None:
        """Give this label to all words that no window has."""
        missing = self.margins < 0
        self.values[missing] = -np.inf
        self.values[missing, label] = 0.0
