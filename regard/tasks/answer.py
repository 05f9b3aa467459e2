"""answer: the answer to a question about a context: a part of the context, or a generated text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from regard.data.example import Question
from regard.data.question_template import QuestionTemplate
from regard.tasks.inputs import QUESTION_AND_CONTEXT, TextPair
from regard.tasks.options import option
from regard.training.task import AnyTask, Metrics, Rows, Runner, Task
from regard.transformer.interface import Predicts, Reads

if TYPE_CHECKING:
    from regard.checkpoint.model_folder import ModelInfo
    from regard.data.encoders.answer_continuations import AnswerContinuationEncoder
    from regard.data.encoders.generative_questions import GenerativeQuestionEncoder
    from regard.data.encoders.questions import QuestionEncoder
    from regard.data.length_policy import LengthPolicy
    from regard.tasks.model_parts import ModelParts
    from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options of question answering. A network with a span head extracts answers; others generate them."""

    n_best: int = option(1, at_least=1)
    """Number of answers for each question, best first."""
    max_answer_length: int = option(30, at_least=1)
    """Maximum number of tokens of an answer."""
    no_answer_threshold: float | None = None
    """Extraction: answer nothing if the score of no answer exceeds that of the best span by more than this. [from the
    model; if it has none, there is always an answer]"""
    format: str | None = None
    """Generation: the input, with {question} and {context}. [from the model, else T5's]"""
    beam: int | None = option(None, flags=("--beam", "--num-beams"), at_least=1)
    """Generation: beam size; 1 is greedy search. [from the generation config, else 1]"""
    batch_tokens: int = option(4096, at_least=1)
    """Extraction: maximum number of tokens in a batch."""


class AnswerKeywords(TypedDict, total=False):
    """The fields of `AnswerOptions` as keyword arguments, for the type checker. A test compares them."""

    n_best: int
    max_answer_length: int
    no_answer_threshold: float | None
    format: str | None
    beam: int | None
    num_beams: int | None
    batch_tokens: int


@dataclass(frozen=True, kw_only=True)
class QuestionAnswer:
    """The answer to one question."""

    text: str
    """The answer; empty if there is none."""
    start: int | None = None
    """Start in the context, in characters; None if there is no answer, or if it was generated."""
    end: int | None = None
    """End in the context, in characters."""
    score: float
    """The probability of the answer: among all spans and no answer, or of the generated text."""
    no_answer_margin: float | None = None
    """Extraction: by how much the score of no answer (a sum of two logits) exceeds that of the best span."""
    truncated: int = 0
    """Number of tokens that were removed because the input was too long for the network."""
    windows: int = 1
    """Number of overlapping windows that the context was read in."""
    alternatives: tuple[QuestionAnswer, ...] = ()
    """The other answers, best first, if `n_best` is greater than 1."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        margin = None if self.no_answer_margin is None else round(self.no_answer_margin, 6)
        values = vars(self) | {"score": round(self.score, 6), "no_answer_margin": margin}
        del values["alternatives"]
        if self.alternatives:
            values["alternatives"] = [alternative.as_json() for alternative in self.alternatives]
        return values

    def as_lines(self) -> Sequence[str]:
        """Return the answer; with alternatives, one line for each answer, with its probability."""
        if not self.alternatives:
            return [self.text]
        return [f"{each.score:.4f}\t{each.text}" for each in (self, *self.alternatives)]


def prepare(model: ModelParts, options: AnswerOptions) -> Runner[TextPair, QuestionAnswer]:
    """Return an `Answerer` for a network that predicts spans, else a `GenerativeAnswerer`."""
    if Predicts.SPAN in model.network.predicts:
        if model.network.reads is not Reads.TOKENS:
            raise ValueError("answer extracts spans with an encoder; this network has a decoder too: load another head")
        from regard.tasks.answerer import Answerer

        return Answerer(model.network, model.tokenizer, model.info, options)
    from regard.tasks.generative_answerer import GenerativeAnswerer

    return GenerativeAnswerer(model, options)


def question_encoder(tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None) -> QuestionEncoder:
    """Return the encoder of questions and contexts with the span of the answer."""
    from regard.data.encoders.questions import QuestionEncoder

    del labels
    return QuestionEncoder(tokenizer=tokenizer, length_policy=policy)


def generative_encoder(
    tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None, *, objective: Any
) -> GenerativeQuestionEncoder:
    """Return the encoder of questions and contexts as one text, in the format of the recipe, and answers as another."""
    from regard.data.encoders.generative_questions import GenerativeQuestionEncoder

    del labels
    template = QuestionTemplate(objective.format, objective.no_answer)
    return GenerativeQuestionEncoder(tokenizer=tokenizer, length_policy=policy, template=template)


def continuation_encoder(
    tokenizer: Tokenizer, labels: tuple[str, ...], policy: LengthPolicy | None, *, objective: Any
) -> AnswerContinuationEncoder:
    """Return the encoder of questions, contexts and answers as one text."""
    from regard.data.encoders.answer_continuations import AnswerContinuationEncoder

    del labels
    template = QuestionTemplate(objective.format, objective.no_answer)
    return AnswerContinuationEncoder(tokenizer=tokenizer, length_policy=policy, template=template)


def for_objective(task: AnyTask, objective: Any) -> AnyTask:
    """Return the declaration for a recipe that extracts answers, or for one that generates them."""
    if objective.kind == "span":
        return replace(task, reads=frozenset({Reads.TOKENS}), predicts=frozenset({Predicts.SPAN}))
    generates = replace(task, predicts=frozenset({Predicts.NEXT_TOKEN}), rows=Rows.TRUNCATED)
    if objective.kind == "generative":
        return replace(
            generates,
            reads=frozenset({Reads.SOURCE_AND_TARGET}),
            architectures=("ForConditionalGeneration", "MTModel"),
            encoder=partial(generative_encoder, objective=objective),
        )
    return replace(
        generates,
        reads=frozenset({Reads.TOKENS}),
        architectures=("LMHeadModel", "ForCausalLM"),
        encoder=partial(continuation_encoder, objective=objective),
    )


def answer_metrics(references: Sequence[Sequence[str]], answers: Sequence[QuestionAnswer]) -> Mapping[str, float]:
    """Compute exact match and token F1, with the best threshold for no answer if some questions have no answer."""
    from regard.metrics.answer_metrics import best_no_answer_threshold, squad_metrics

    texts = [answer.text for answer in answers]
    margins = [answer.no_answer_margin for answer in answers]
    if all(references) or None in margins:
        return squad_metrics(references, texts)
    return best_no_answer_threshold(references, texts, [margin or 0.0 for margin in margins]).metrics


def fit_no_answer_threshold(references: Sequence[Sequence[str]], answers: Sequence[QuestionAnswer]) -> ModelInfo:
    """Return the threshold with the best F1, if some questions have no answer."""
    from regard.metrics.answer_metrics import best_no_answer_threshold

    margins = [answer.no_answer_margin for answer in answers]
    if all(references) or None in margins:
        return {}
    texts = [answer.text for answer in answers]
    best = best_no_answer_threshold(references, texts, [margin or 0.0 for margin in margins])
    return {"no_answer_threshold": best.threshold}


ANSWER = Task(
    name="answer",
    summary="Answer QUESTION about a context: one output line per input line, in order. No answer is an empty line.",
    input=QUESTION_AND_CONTEXT,
    options=AnswerOptions,
    result=QuestionAnswer,
    prepare=prepare,
    example=Question,
    reads=frozenset({Reads.TOKENS, Reads.SOURCE_AND_TARGET}),
    predicts=frozenset({Predicts.SPAN, Predicts.NEXT_TOKEN}),
    architectures=("ForQuestionAnsweringSimple", "ForQuestionAnswering"),
    objectives=("span", "generative", "continuation"),
    for_objective=for_objective,
    rows=Rows.OVERLAPPING_WINDOWS,
    encoder=question_encoder,
    input_of=lambda question: (question.question, question.context),
    metrics=Metrics(
        names=("loss", "accuracy", "exact_match", "f1"),
        compute=answer_metrics,
        calibrate=fit_no_answer_threshold,
        reference_of=lambda question: [answer.text for answer in question.answers],
        prediction_of=lambda result: result,
    ),
)
