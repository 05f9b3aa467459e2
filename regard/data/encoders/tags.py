"""Encoder for tagged sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from regard.data.encoders.encoder_base import (
    EXAMPLE_COLUMN,
    IGNORE_INDEX,
    INT32,
    ColumnTypes,
    EncodedExamples,
    no_tokens_error,
    policy_to_json,
    token_dtype,
)
from regard.data.encoders.row_slicing import take, window_positions
from regard.data.example import TaggedSentence
from regard.data.label_ids import label_id
from regard.data.length_policy import LengthPolicy, TruncationStats
from regard.data.ragged import RaggedArray
from regard.tokenization.tokenizer import Encoding, Tokenizer

NO_WORD = -1
"""Word id of tokens that are not part of a word."""


@dataclass(frozen=True, kw_only=True)
class TaggedSentenceEncoder:
    """Encode to columns `tokens`, `tags`, `words` and `example`.

    Words are joined by spaces and encoded as one text. `words` holds the word id of each token, -1 for none. The first
    token of a word has the word's tag. The other tokens have -100, which the loss ignores, so that each word counts
    once. A word without tokens (such as a single control character) has no tag in the row; it is predicted as `O`.
    """

    tokenizer: Tokenizer
    tags: tuple[str, ...]
    """Tag names in the order of their ids."""
    length_policy: LengthPolicy | None = None

    @property
    def example_type(self) -> type[TaggedSentence]:
        """`TaggedSentence`."""
        return TaggedSentence

    @property
    def columns(self) -> ColumnTypes:
        """`tokens`, `tags`, `words`, and `example`, because windows give several rows per example."""
        int_columns = dict.fromkeys(("tags", "words", EXAMPLE_COLUMN), INT32)
        return {"tokens": token_dtype(self.tokenizer), **int_columns}

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        options = {"tags": self.tags, "long": policy_to_json(self.length_policy)}
        return {"encoder": "tags", "tokenizer": self.tokenizer.fingerprint(), **options}

    def encode(self, examples: Sequence[TaggedSentence]) -> EncodedExamples:
        """Encode each sentence to one row, or to one row per window."""
        tag_to_id = {name: index for index, name in enumerate(self.tags)}
        rows: dict[str, list[list[int]]] = {"tokens": [], "tags": [], "words": []}
        example_indices, total = [], TruncationStats()
        encodings = self.tokenizer.encode_batch([" ".join(example.words) for example in examples])
        for index, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            if not encoding.ids:
                raise no_tokens_error(example, "sentence")
            words = word_ids(encoding, example.words)
            tags = _tag_first_tokens(words, [label_id(tag, tag_to_id, example) for tag in example.tags])
            windows, stats = window_positions(encoding, 0, self.length_policy, example)
            for positions in windows:
                rows["tokens"].append(take(encoding.ids, positions))
                rows["tags"].append(take(tags, positions))
                rows["words"].append(take(words, positions))
                example_indices.append(index)
            total += stats
        columns = {name: RaggedArray.from_rows(values, self.columns[name]) for name, values in rows.items()}
        return EncodedExamples(columns, total, example_indices)


def word_ids(encoding: Encoding, words: Sequence[str]) -> list[int]:
    """Return the word id of each token, from the offset of its last character in the words joined by spaces.

    The last character and not the first, because byte-level tokens start with the space before their word.
    """
    ends = list(accumulate(len(word) + 1 for word in words))
    ids, word = [], 0
    for (_, end), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True):
        while word < len(ends) - 1 and end - 1 >= ends[word]:
            word += 1
        outside = special or end == 0 or end == ends[word]  # a special token, or only the space after a word
        ids.append(NO_WORD if outside else word)
    return ids


def _tag_first_tokens(words: Sequence[int], tags: Sequence[int]) -> list[int]:
    previous_word, token_tags = NO_WORD, []
    for word in words:
        token_tags.append(IGNORE_INDEX if word in (NO_WORD, previous_word) else tags[word])
        previous_word = previous_word if word == NO_WORD else word
    return token_tags
