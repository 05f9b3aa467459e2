"""Encoder for images with a label or a caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from regard.data.encoders.encoder_base import ColumnTypes, EncodedExamples, policy_to_json, token_dtype
from regard.data.encoders.row_slicing import drop_longest_first, take
from regard.data.example import ImageText
from regard.data.image_files import open_image
from regard.data.image_processor import ImageProcessor
from regard.data.length_policy import LengthPolicy, TruncationStats
from regard.data.ragged import RaggedArray
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import Tokenizer

UINT8 = np.dtype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class ImageTextEncoder:
    """Encode to columns `pixels` (0 to 255, resized and cropped: channels × height × width) and `label` or `tokens`.

    Pixels are normalised later, in float32: stored as bytes they take a quarter of the space.
    """

    processor: ImageProcessor
    labels: tuple[str, ...] = ()
    """The labels, in the order of their ids; empty if the texts are captions."""
    tokenizer: Tokenizer | None = None
    """The tokenizer of captions."""
    length_policy: LengthPolicy | None = None
    """Policy for long captions."""

    @property
    def example_type(self) -> type[ImageText]:
        """`ImageText`."""
        return ImageText

    @property
    def columns(self) -> ColumnTypes:
        """`pixels`, and `label` or `tokens`."""
        text = {"label": np.dtype(np.int32)} if self.tokenizer is None else {"tokens": token_dtype(self.tokenizer)}
        return {"pixels": UINT8, **text}

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        processor = {name: repr(value) for name, value in asdict(self.processor).items()}
        tokenizer = None if self.tokenizer is None else self.tokenizer.fingerprint()
        options = {"labels": self.labels, "long": policy_to_json(self.length_policy)}
        return {"encoder": "images", "processor": processor, "tokenizer": tokenizer, **options}

    def encode(self, examples: Sequence[ImageText]) -> EncodedExamples:
        """Encode each image to one row. The rows of an image follow each other, so each image is opened once."""
        rows, previous = [], None
        for example in examples:
            if previous is None or example.image != previous:
                try:
                    pixels = self.processor.resize(open_image(example.image)).reshape(-1)
                except ValueError as error:
                    raise DataError(example.file, example.line, str(error)) from None
                previous = example.image
            rows.append(pixels)
        lengths = np.array([len(row) for row in rows], np.int32)
        columns = {"pixels": RaggedArray(np.concatenate(rows), lengths)}
        if self.tokenizer is None:
            columns["label"] = RaggedArray.from_scalars([self._label(example) for example in examples], INT32)
            return EncodedExamples(columns, TruncationStats())
        tokens, stats = self._tokens(self.tokenizer, examples)
        columns["tokens"] = RaggedArray.from_rows(tokens, self.columns["tokens"])
        return EncodedExamples(columns, stats)

    def _label(self, example: ImageText) -> int:
        if example.text not in self.labels:
            raise DataError(
                example.file, example.line, f"unknown label {example.text!r}; the labels are {', '.join(self.labels)}"
            )
        return self.labels.index(example.text)

    def _tokens(self, tokenizer: Tokenizer, examples: Sequence[ImageText]) -> tuple[list[list[int]], TruncationStats]:
        rows, total = [], TruncationStats()
        limit = None if self.length_policy is None else self.length_policy.max_length
        for encoding in tokenizer.encode_batch([example.text for example in examples]):
            excess = max(0, len(encoding) - limit) if limit else 0
            rows.append(take(encoding.ids, drop_longest_first(encoding, excess)))
            total += TruncationStats(examples=int(excess > 0), tokens=excess)
        return rows, total


INT32 = np.dtype(np.int32)
