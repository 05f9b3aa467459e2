"""Encoder for questions whose answer is generated: one text made of question and context, and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.data.encoders.encoder_base import ColumnTypes, EncodedExamples
from regard.data.encoders.pairs import PairEncoder
from regard.data.example import Pair, Question
from regard.data.length_policy import LengthPolicy
from regard.data.question_template import QuestionTemplate
from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class GenerativeQuestionEncoder:
    """Encode to columns `source` and `target`: a question and its context in a format, and its first answer.

    A long source is truncated at its end.
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
        """`source` and `target`."""
        return self.pair_encoder.columns

    @cached_property
    def pair_encoder(self) -> PairEncoder:
        """The encoder of the two texts."""
        policy = self.length_policy
        return PairEncoder(tokenizer=self.tokenizer, source_length_policy=policy, target_length_policy=policy)

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        return {
            **self.pair_encoder.fingerprint(),
            "encoder": "generative questions",
            "format": self.template.as_json(),
        }

    def encode(self, examples: Sequence[Question]) -> EncodedExamples:
        """Encode each question to a row of source ids and a row of target ids."""
        return self.pair_encoder.encode([self._pair(example) for example in examples])

    def _pair(self, example: Question) -> Pair:
        source, target = self.template.source(example.question, example.context), self.template.target(example)
        return Pair(file=example.file, line=example.line, source=source, target=target)
