"""answer: the part of a context that answers a question. It can be trained; using it follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.data.example import Question
from regard.tasks.inputs import QUESTION_AND_CONTEXT
from regard.tasks.options import option
from regard.training.task import Metrics, Rows, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.data.encoders.questions import QuestionEncoder
    from regard.data.length_policy import LengthPolicy
    from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options of question answering."""

    top_k: int = option(1, at_least=1)
    """Number of answers for each question, the most likely first."""
    max_answer_length: int = option(30, at_least=1)
    """Maximum number of tokens of an answer."""


@dataclass(frozen=True, kw_only=True)
class SpanAnswer:
    """The answer to one question."""

    text: str
    """The answer; empty if the context has none."""
    start: int
    """Start in the context, in characters."""
    end: int
    """End in the context, in characters."""
    score: float
    """The probability of the answer."""
    truncated: int = 0
    """Number of tokens of the context that no window covers."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return vars(self) | {"score": round(self.score, 6)}

    def as_lines(self) -> Sequence[str]:
        """Return the answer."""
        return [self.text]


def question_encoder(tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None) -> QuestionEncoder:
    """Return the encoder of questions and contexts."""
    from regard.data.encoders.questions import QuestionEncoder

    del labels
    return QuestionEncoder(tokenizer=tokenizer, length_policy=policy)


def answer_metrics(references: Sequence[Sequence[str]], answers: Sequence[str]) -> Mapping[str, float]:
    """Compute exact match and token F1."""
    from regard.metrics.task_metrics import squad_metrics

    return squad_metrics(references, answers)


ANSWER = Task(
    name="answer",
    summary="Print the part of a context that answers QUESTION: one output line per input line, in order.",
    input=QUESTION_AND_CONTEXT,
    options=AnswerOptions,
    result=SpanAnswer,
    example=Question,
    reads=frozenset({Reads.TOKENS}),
    predicts=frozenset({Predicts.SPAN}),
    architectures=("ForQuestionAnswering",),
    objectives=("span",),
    rows=Rows.OVERLAPPING_WINDOWS,
    encoder=question_encoder,
    input_of=lambda question: (question.question, question.context),
    metrics=Metrics(
        names=("loss", "accuracy", "exact_match", "f1"),
        compute=answer_metrics,
        reference_of=lambda question: [answer.text for answer in question.answers],
        prediction_of=lambda result: result.text,
    ),
)
