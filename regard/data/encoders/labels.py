"""Encoder for texts, or pairs of texts, with a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data.encoders.encoder_base import ColumnTypes, EncodedExamples, no_tokens_error, policy_to_json, token_dtype
from regard.data.encoders.row_slicing import take, truncate_longest_first
from regard.data.example import LabeledText
from regard.data.label_ids import label_id, split_labels
from regard.data.length_policy import LengthPolicy, SlidingWindow, TruncationStats
from regard.data.ragged import RaggedArray
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True, kw_only=True)
class LabeledTextEncoder:
    """Encode to columns `tokens`, `segments` and `label`: the id of the class, or the score.

    If a text can have several labels, `label` has a 0 or 1 for each.
    """

    tokenizer: Tokenizer
    labels: tuple[str, ...] | None
    """Class names in the order of their ids. None: labels are scores (such as the similarity of two texts)."""
    separator: str | None = None
    """Separator of the labels of a text. None: each text has one label."""
    length_policy: LengthPolicy | None = None
    """Policy for long texts. Of a pair, the longer text is truncated. No windows: the label describes the full text."""

    def __post_init__(self) -> None:
        if isinstance(self.length_policy, SlidingWindow):
            raise ValueError(
                "labeled texts cannot be split into windows (one label per text): use Truncation or StrictLength"
            )

    @property
    def example_type(self) -> type[LabeledText]:
        """`LabeledText`."""
        return LabeledText

    @property
    def columns(self) -> ColumnTypes:
        """`tokens`, `segments`, `label`."""
        label = np.dtype(np.float32 if self.labels is None else np.int32)
        return {"tokens": token_dtype(self.tokenizer), "segments": np.dtype(np.uint8), "label": label}

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        options: dict[str, object] = {"labels": self.labels, "long": policy_to_json(self.length_policy)}
        if self.separator is not None:
            options["separator"] = self.separator
        return {"encoder": "labels", "tokenizer": self.tokenizer.fingerprint(), **options}

    def encode(self, examples: Sequence[LabeledText]) -> EncodedExamples:
        """Encode each text or pair to one row."""
        tokens, segments, total = [], [], TruncationStats()
        for example, encoding in zip(examples, self._encodings(examples), strict=True):
            if not encoding.ids:
                raise no_tokens_error(example, "text")
            positions, stats = truncate_longest_first(encoding, self.length_policy, example)
            tokens.append(take(encoding.ids, positions))
            segments.append(take(encoding.segments, positions))
            total += stats
        dtypes = self.columns
        columns = {
            "tokens": RaggedArray.from_rows(tokens, dtypes["tokens"]),
            "segments": RaggedArray.from_rows(segments, dtypes["segments"]),
            "label": self._label_column(examples, dtypes["label"]),
        }
        return EncodedExamples(columns, total)

    def _encodings(self, examples: Sequence[LabeledText]) -> list[Encoding]:
        pairs = [example.pair for example in examples if example.pair is not None]
        if pairs and len(pairs) != len(examples):
            single = next(example for example in examples if example.pair is None)
            raise DataError(single.file, single.line, "this example has one text, but others have a pair of texts")
        return self.tokenizer.encode_batch([example.text for example in examples], pairs or None)

    def _label_column(self, examples: Sequence[LabeledText], dtype: np.dtype[Any]) -> RaggedArray:
        if self.separator is None:
            return RaggedArray.from_scalars(self._labels(examples), dtype)
        label_to_id = {name: index for index, name in enumerate(self.labels or ())}
        rows = []
        for example in examples:
            row = [0] * len(label_to_id)
            for name in split_labels(example.label, self.separator):
                row[label_id(name, label_to_id, example)] = 1
            rows.append(row)
        return RaggedArray.from_rows(rows, dtype)

    def _labels(self, examples: Sequence[LabeledText]) -> list[float]:
        label_to_id = {name: index for index, name in enumerate(self.labels or ())}
        values: list[float] = []
        for example in examples:
            match example.label:
                case str(name) if self.labels is not None:
                    values.append(float(label_id(name, label_to_id, example)))
                case float(score) if self.labels is None:
                    values.append(score)
                case label:
                    expected = "a number" if self.labels is None else "a class name"
                    raise DataError(example.file, example.line, f"the label should be {expected}, found {label!r}")
        return values
