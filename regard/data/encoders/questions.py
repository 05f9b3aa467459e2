"""Encoder for questions about a context, with the span of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.encoders.encoder_base import (
    EXAMPLE_COLUMN,
    INT32,
    ColumnTypes,
    EncodedExamples,
    policy_to_json,
    token_dtype,
)
from regard.data.encoders.row_slicing import take, token_positions, window_positions
from regard.data.example import FREE_ANSWER, Question
from regard.data.length_policy import LengthPolicy, Truncation, TruncationStats
from regard.data.ragged import RaggedArray
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True, kw_only=True)
class QuestionEncoder:
    """Encode a question and its context.

    Columns: `tokens`; `segments`; `begins` and `ends`, the character offsets of each token in the context (0, 0 for
    other tokens); `answer`, the positions of its first and last token in the row; `example`, the index of the question.

    A long context is split into several rows, each with the complete question. If a row does not contain the answer,
    or there is none, both values of `answer` are the position of the CLS token, as usual for SQuAD 2.0.
    """

    tokenizer: Tokenizer
    length_policy: LengthPolicy | None = None

    def __post_init__(self) -> None:
        if isinstance(self.length_policy, Truncation):
            raise ValueError("truncation would drop answers late in the context: use SlidingWindow or StrictLength")

    @property
    def example_type(self) -> type[Question]:
        """`Question`."""
        return Question

    @property
    def columns(self) -> ColumnTypes:
        """`tokens`, `segments`, `begins`, `ends`, `answer`, `example`."""
        int_columns = dict.fromkeys(("begins", "ends", "answer", EXAMPLE_COLUMN), INT32)
        return {"tokens": token_dtype(self.tokenizer), "segments": np.dtype(np.uint8), **int_columns}

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        return {
            "encoder": "questions",
            "tokenizer": self.tokenizer.fingerprint(),
            "long": policy_to_json(self.length_policy),
        }

    def encode(self, examples: Sequence[Question]) -> EncodedExamples:
        """Encode each question to one row, or to one row per window of its context."""
        names = ("tokens", "segments", "begins", "ends", "answer")
        rows: dict[str, list[list[int]]] = {name: [] for name in names}
        example_indices, total = [], TruncationStats()
        encodings = self.tokenizer.encode_batch(
            [example.question for example in examples], [example.context for example in examples]
        )
        for index, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            windows, stats = window_positions(encoding, 1, self.length_policy, example)
            answer = answer_token_span(encoding, example)
            offsets = [
                span if sequence_id == 1 else (0, 0)
                for span, sequence_id in zip(encoding.offsets, encoding.sequence_ids, strict=True)
            ]
            for positions in windows:
                rows["tokens"].append(take(encoding.ids, positions))
                rows["segments"].append(take(encoding.segments, positions))
                rows["begins"].append([offsets[position][0] for position in positions])
                rows["ends"].append([offsets[position][1] for position in positions])
                rows["answer"].append(self._answer_in_window(answer, positions, encoding))
                example_indices.append(index)
            total += stats
        columns = {name: RaggedArray.from_rows(values, self.columns[name]) for name, values in rows.items()}
        return EncodedExamples(columns, total, example_indices)

    def _answer_in_window(self, answer: tuple[int, int] | None, positions: list[int], encoding: Encoding) -> list[int]:
        """Return the positions of the answer's first and last token within the window."""
        if answer is not None and {*answer} <= {*positions}:
            return [positions.index(answer[0]), positions.index(answer[1])]
        return 2 * [no_answer_position(take(encoding.ids, positions), self.tokenizer.special_ids.cls)]


def no_answer_position(ids: Sequence[int], cls_token_id: int | None) -> int:
    """Return the position that stands for "no answer": that of the CLS token, or 0 if there is none."""
    return ids.index(cls_token_id) if cls_token_id is not None and cls_token_id in ids else 0


def answer_token_span(encoding: Encoding, example: Question) -> tuple[int, int] | None:
    """Return the positions of the first and last token of the first answer; None if the question has no answer."""
    if not example.answers:
        return None
    answer = example.answers[0]
    start = example.context.find(answer.text) if answer.start == FREE_ANSWER else answer.start
    end = start + len(answer.text)
    if start == FREE_ANSWER:
        message = f"answer {answer.text[:40]!r} is no part of the context, so its span cannot be learnt"
        raise DataError(example.file, example.line, f"{message}. Set [objective] kind = 'generative'")
    if not answer.text or example.context[start:end] != answer.text:
        actual = example.context[start : start + 40]
        message = f"answer {answer.text[:40]!r} is not at character offset {start} of the context (found {actual!r})"
        raise DataError(example.file, example.line, f"{message}. `regard doctor` lists all such answers")
    overlapping = [
        position
        for position in token_positions(encoding, 1)
        if encoding.offsets[position][0] < end and encoding.offsets[position][1] > start
    ]
    return (overlapping[0], overlapping[-1]) if overlapping else None
