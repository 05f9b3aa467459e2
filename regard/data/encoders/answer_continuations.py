"""Encoder for questions whose answer a decoder writes: context, question and answer as one sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.data.encoders.encoder_base import (
    IGNORE_INDEX,
    INT32,
    ColumnTypes,
    EncodedExamples,
    SpecialTokenTemplate,
    policy_to_json,
    token_dtype,
)
from regard.data.example import Question
from regard.data.length_policy import LengthPolicy, StrictLength, TruncationStats, window_spans
from regard.data.question_template import QuestionTemplate
from regard.data.ragged import RaggedArray
from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class AnswerContinuationEncoder:
    """Encode to columns `tokens` and `labels`: the next token at each position from which the answer is predicted.

        tokens    Question : who ? Answer : ▁Anna </s>
        labels                            ▁Anna </s>  -

    A sequence that is too long loses tokens at its start, as in generation, so that question and answer stay.
    """

    tokenizer: Tokenizer
    template: QuestionTemplate
    length_policy: LengthPolicy | None = None

    @property
    def example_type(self) -> type[Question]:
        """`Question`."""
        return Question

    @property
    def columns(self) -> ColumnTypes:
        """`tokens` and `labels`."""
        return {"tokens": token_dtype(self.tokenizer), "labels": INT32}

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        return {
            "encoder": "answer continuations",
            "tokenizer": self.tokenizer.fingerprint(),
            "long": policy_to_json(self.length_policy),
            "format": self.template.as_json(),
        }

    @cached_property
    def special(self) -> SpecialTokenTemplate:
        """The special tokens before the text, and after it with EOS."""
        special = SpecialTokenTemplate.from_tokenizer(self.tokenizer).with_eos(self.tokenizer.special_ids.eos)
        if not special.suffix:
            raise ValueError("the tokenizer has no end-of-sequence token, so the model could not learn to stop")
        return special

    def encode(self, examples: Sequence[Question]) -> EncodedExamples:
        """Encode each question to one row."""
        sources = [self.template.source(example.question, example.context) for example in examples]
        texts = [
            f"{source} {self.template.target(example).strip()}"
            for source, example in zip(sources, examples, strict=True)
        ]
        encodings = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        tokens, labels, total = [], [], TruncationStats()
        for example, source_text, encoding in zip(examples, sources, encodings, strict=True):
            length = sum(end <= len(source_text) for _, end in encoding.offsets)
            source, target = encoding.ids[:length], encoding.ids[length:]
            answer = [*target, *self.special.suffix]
            kept, stats = self._truncate(example, source, len(self.special.prefix) + len(answer))
            before = [*self.special.prefix, *kept]
            tokens.append([*before, *answer])
            labels.append([*[IGNORE_INDEX] * (len(before) - 1), *answer, IGNORE_INDEX])
            total += stats
        types = self.columns
        rows = {"tokens": tokens, "labels": labels}
        return EncodedExamples({name: RaggedArray.from_rows(rows[name], types[name]) for name in rows}, total)

    def _truncate(self, example: Question, source: list[int], overhead: int) -> tuple[list[int], TruncationStats]:
        """Remove tokens from the start of a source that is too long."""
        policy = self.length_policy
        if policy is None or len(source) + overhead <= policy.max_length:
            return source, TruncationStats()
        if isinstance(policy, StrictLength) or policy.max_length <= overhead:
            window_spans(policy, len(source), overhead, example.file, example.line)  # raises DataError
        excess = len(source) + overhead - policy.max_length
        return source[excess:], TruncationStats(examples=1, tokens=excess)
