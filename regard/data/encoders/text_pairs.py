"""Encoder for two texts that belong together, each a row of its own (task embed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.data.encoders.encoder_base import (
    EXAMPLE_COLUMN,
    INT32,
    ColumnTypes,
    EncodedExamples,
    policy_to_json,
    token_dtype,
)
from regard.data.encoders.row_slicing import drop_longest_first, take
from regard.data.example import LabeledText
from regard.data.length_policy import LengthPolicy, SlidingWindow, TruncationStats
from regard.data.ragged import RaggedArray
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True, kw_only=True)
class TextPairEncoder:
    """Encode to columns `tokens` and `pair`, the tokens of each text, and `example`.

    Pairs with a low score are left out.
    """

    tokenizer: Tokenizer
    min_score: float
    """The lowest score of a pair that belongs together."""
    length_policy: LengthPolicy | None = None
    """Policy for long texts, which are truncated."""

    def __post_init__(self) -> None:
        if isinstance(self.length_policy, SlidingWindow):
            raise ValueError("the texts of a pair cannot be split into windows: use Truncation or StrictLength")

    @property
    def example_type(self) -> type[LabeledText]:
        """`LabeledText`, with a pair and a score."""
        return LabeledText

    @property
    def columns(self) -> ColumnTypes:
        """`tokens`, `pair`, `example`."""
        tokens = token_dtype(self.tokenizer)
        return {"tokens": tokens, "pair": tokens, EXAMPLE_COLUMN: INT32}

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        options = {"min_score": self.min_score, "long": policy_to_json(self.length_policy)}
        return {"encoder": "text pairs", "tokenizer": self.tokenizer.fingerprint(), **options}

    def encode(self, examples: Sequence[LabeledText]) -> EncodedExamples:
        """Encode each pair with a sufficient score to one row."""
        for example in examples:
            if example.pair is None or isinstance(example.label, str):
                raise DataError(example.file, example.line, "expected two texts and a score")
        chosen = [index for index, example in enumerate(examples) if float(example.label) >= self.min_score]
        total = TruncationStats()
        rows: list[list[list[int]]] = [[], []]
        for side, texts in enumerate(([examples[i].text for i in chosen], [examples[i].pair or "" for i in chosen])):
            for encoding in self.tokenizer.encode_batch(texts):
                ids, stats = self._truncate(encoding)
                rows[side].append(ids)
                total += stats
        token_type = self.columns["tokens"]
        columns = {
            "tokens": RaggedArray.from_rows(rows[0], token_type),
            "pair": RaggedArray.from_rows(rows[1], token_type),
        }
        return EncodedExamples(columns, total, chosen)

    def _truncate(self, encoding: Encoding) -> tuple[list[int], TruncationStats]:
        limit = None if self.length_policy is None else self.length_policy.max_length
        excess = max(0, len(encoding) - limit) if limit else 0
        stats = TruncationStats(examples=int(excess > 0), tokens=excess)
        return take(encoding.ids, drop_longest_first(encoding, excess)), stats
