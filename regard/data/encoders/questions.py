"""Questions about a context, with the place of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.encoders.encoder_base import INTEGER, ORIGIN, Chunk, Columns, describe, ids_type
from regard.data.encoders.row_slicing import places_of, taken, windows
from regard.data.example import Question
from regard.data.length_policy import Cut, Cuts, Long
from regard.data.ragged import Ragged
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import Encoded, Tokenizer


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Columns `tokens`, `segments`; `begins`, `ends` (each token's place in the context, in characters; 0, 0 outside
    it); `answer` (its first and last token in the row) and `example` (which question a row is of).

    A long context becomes several rows, each with the whole question. Where the answer is not in a row, or there is
    none, both numbers of `answer` are the place of the classification token, as for SQuAD 2.0.
    """

    tokenizer: Tokenizer
    long: Long | None = None

    def __post_init__(self) -> None:
        if isinstance(self.long, Cut):
            raise ValueError("a cut would lose answers that stand later in the context: use Windowed or Refuse")

    @property
    def kind(self) -> type[Question]:
        """Questions."""
        return Question

    @property
    def columns(self) -> Columns:
        """See the class."""
        numbers = dict.fromkeys(("begins", "ends", "answer", ORIGIN), INTEGER)
        return {"tokens": ids_type(self.tokenizer), "segments": np.dtype(np.uint8), **numbers}

    def fingerprint(self) -> Mapping[str, object]:
        """What the rows depend on."""
        return {"encoder": "questions", "tokenizer": self.tokenizer.fingerprint(), "long": describe(self.long)}

    def encode(self, examples: Sequence[Question]) -> Chunk:
        """One row for each question, or one for each window of its context."""
        names = ("tokens", "segments", "begins", "ends", "answer")
        found: dict[str, list[list[int]]] = {name: [] for name in names}
        origin, total = [], Cuts()
        rows = self.tokenizer.encode_many([one.question for one in examples], [one.context for one in examples])
        for number, (example, row) in enumerate(zip(examples, rows, strict=True)):
            parts, cuts = windows(row, 1, self.long, example)
            answer = answer_places(row, example)
            for places in parts:
                found["tokens"].append(taken(row.ids, places))
                found["segments"].append(taken(row.segments, places))
                found["begins"].append([row.offsets[place][0] if row.sides[place] == 1 else 0 for place in places])
                found["ends"].append([row.offsets[place][1] if row.sides[place] == 1 else 0 for place in places])
                found["answer"].append(self._within(answer, places, row))
                origin.append(number)
            total += cuts
        columns = {name: Ragged.of(values, self.columns[name]) for name, values in found.items()}
        return Chunk(columns, total, origin)

    def _within(self, answer: tuple[int, int] | None, places: list[int], row: Encoded) -> list[int]:
        if answer is not None and {*answer} <= {*places}:
            return [places.index(answer[0]), places.index(answer[1])]
        return 2 * [nowhere(taken(row.ids, places), self.tokenizer.special.classify)]


def nowhere(ids: Sequence[int], classify: int | None) -> int:
    """The place in a row that stands for "no answer": that of the classification token, or the first."""
    return ids.index(classify) if classify is not None and classify in ids else 0


def answer_places(row: Encoded, example: Question) -> tuple[int, int] | None:
    """First and last token of the first answer in the whole row; None where the question has no answer."""
    if not example.answers:
        return None
    answer = example.answers[0]
    begin, end = answer.start, answer.start + len(answer.text)
    if not answer.text or example.context[begin:end] != answer.text:
        there = example.context[begin : begin + 40]
        said = f"the answer {answer.text[:40]!r} does not stand at character {begin} of its context, {there!r} does"
        raise DataError(example.file, example.line, f"{said}. `regard doctor` finds all such answers")
    touched = [p for p in places_of(row, 1) if row.offsets[p][0] < end and row.offsets[p][1] > begin]
    return (touched[0], touched[-1]) if touched else None
