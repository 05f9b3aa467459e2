"""Words with a tag for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from regard.data.encoders.encoder_base import IGNORED, INTEGER, ORIGIN, Chunk, Columns, describe, ids_type, nothing_left
from regard.data.encoders.row_slicing import taken, windows
from regard.data.example import Tagged
from regard.data.label_ids import number_of
from regard.data.length_policy import Cuts, Long
from regard.data.ragged import Ragged
from regard.tokenization.tokenizer import Encoded, Tokenizer

NO_WORD = -1


@dataclass(frozen=True, kw_only=True)
class Tags:
    """Columns `tokens`, `tags` and `words`, and `example`.

    Words are joined by blanks and encoded as one text. `words` says which word each token is part of, -1 for none.
    A word's tag stands at its first token, and the other tokens have -100, so that each word is learnt once. A word of
    which the tokenizer makes no token (a lone control character) has no place, and is left to `O`.
    """

    tokenizer: Tokenizer
    tags: tuple[str, ...]
    """The names; a tag's number is its place here."""
    long: Long | None = None

    @property
    def kind(self) -> type[Tagged]:
        """Tagged words."""
        return Tagged

    @property
    def columns(self) -> Columns:
        """`tokens`, `tags`, `words`; `example` says which example a row is of, as windows make several of one."""
        numbers = dict.fromkeys(("tags", "words", ORIGIN), INTEGER)
        return {"tokens": ids_type(self.tokenizer), **numbers}

    def fingerprint(self) -> Mapping[str, object]:
        """What the rows depend on."""
        settings = {"tags": self.tags, "long": describe(self.long)}
        return {"encoder": "tags", "tokenizer": self.tokenizer.fingerprint(), **settings}

    def encode(self, examples: Sequence[Tagged]) -> Chunk:
        """One row for each sentence, or several where it is windowed."""
        numbers = {name: number for number, name in enumerate(self.tags)}
        found: dict[str, list[list[int]]] = {"tokens": [], "tags": [], "words": []}
        origin, total = [], Cuts()
        rows = self.tokenizer.encode_many([" ".join(one.words) for one in examples])
        for number, (example, row) in enumerate(zip(examples, rows, strict=True)):
            if not row.ids:
                raise nothing_left(example, "sentence")
            words = words_of(row, example.words)
            tags = _at_first_tokens(words, [number_of(tag, numbers, example) for tag in example.tags])
            parts, cuts = windows(row, 0, self.long, example)
            for places in parts:
                found["tokens"].append(taken(row.ids, places))
                found["tags"].append(taken(tags, places))
                found["words"].append(taken(words, places))
                origin.append(number)
            total += cuts
        columns = {name: Ragged.of(values, self.columns[name]) for name, values in found.items()}
        return Chunk(columns, total, origin)


def words_of(row: Encoded, words: Sequence[str]) -> list[int]:
    """The word that each token is part of, by where its last character stands in the words joined by blanks.

    The last and not the first, because byte-level tokens begin with the blank before their word.
    """
    ends = list(accumulate(len(word) + 1 for word in words))
    found, word = [], 0
    for (_, end), special in zip(row.offsets, row.special, strict=True):
        while word < len(ends) - 1 and end - 1 >= ends[word]:
            word += 1
        blank = special or end == 0 or end == ends[word]
        found.append(NO_WORD if blank else word)
    return found


def _at_first_tokens(words: Sequence[int], tags: Sequence[int]) -> list[int]:
    before, found = NO_WORD, []
    for word in words:
        found.append(IGNORED if word in (NO_WORD, before) else tags[word])
        before = before if word == NO_WORD else word
    return found
