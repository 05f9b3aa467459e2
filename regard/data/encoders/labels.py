"""Texts, or pairs of texts, with a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.encoders.encoder_base import Chunk, Columns, describe, ids_type, nothing_left
from regard.data.encoders.row_slicing import shortened, taken
from regard.data.example import Labelled
from regard.data.label_ids import number_of
from regard.data.length_policy import Cuts, Long, Windowed
from regard.data.ragged import Ragged
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import Encoded, Tokenizer


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Columns `tokens`, `segments` and `label`: the number of the label, or the label itself where it is a number."""

    tokenizer: Tokenizer
    labels: tuple[str, ...] | None
    """The names; a label's number is its place here. None: labels are numbers themselves (how alike two texts are)."""
    long: Long | None = None
    """What to do with a long text; of two, the longer one is cut. There are no windows: a label is of all of it."""

    def __post_init__(self) -> None:
        if isinstance(self.long, Windowed):
            raise ValueError("a label belongs to a whole text, not to a window of it: use Cut or Refuse")

    @property
    def kind(self) -> type[Labelled]:
        """Labelled texts."""
        return Labelled

    @property
    def columns(self) -> Columns:
        """`tokens`, `segments`, `label`."""
        label = np.dtype(np.float32 if self.labels is None else np.int32)
        return {"tokens": ids_type(self.tokenizer), "segments": np.dtype(np.uint8), "label": label}

    def fingerprint(self) -> Mapping[str, object]:
        """What the rows depend on."""
        settings = {"labels": self.labels, "long": describe(self.long)}
        return {"encoder": "labels", "tokenizer": self.tokenizer.fingerprint(), **settings}

    def encode(self, examples: Sequence[Labelled]) -> Chunk:
        """One row for each text or pair."""
        tokens, segments, total = [], [], Cuts()
        for example, row in zip(examples, self._rows(examples), strict=True):
            if not row.ids:
                raise nothing_left(example, "text")
            places, cuts = shortened(row, self.long, example)
            tokens.append(taken(row.ids, places))
            segments.append(taken(row.segments, places))
            total += cuts
        types = self.columns
        columns = {
            "tokens": Ragged.of(tokens, types["tokens"]),
            "segments": Ragged.of(segments, types["segments"]),
            "label": Ragged.single(self._labels(examples), types["label"]),
        }
        return Chunk(columns, total)

    def _rows(self, examples: Sequence[Labelled]) -> list[Encoded]:
        pairs = [one.pair for one in examples if one.pair is not None]
        if pairs and len(pairs) != len(examples):
            single = next(one for one in examples if one.pair is None)
            raise DataError(single.file, single.line, "there is one text here, where others come in pairs")
        return self.tokenizer.encode_many([one.text for one in examples], pairs or None)

    def _labels(self, examples: Sequence[Labelled]) -> list[float]:
        numbers = {name: number for number, name in enumerate(self.labels or ())}
        found: list[float] = []
        for example in examples:
            match example.label:
                case str(name) if self.labels is not None:
                    found.append(float(number_of(name, numbers, example)))
                case float(value) if self.labels is None:
                    found.append(value)
                case other:
                    expected = "a number" if self.labels is None else "a name"
                    raise DataError(example.file, example.line, f"the label should be {expected}, found {other!r}")
        return found
