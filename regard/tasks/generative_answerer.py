"""The `GenerativeAnswerer`: answers to questions as generated text, with an encoder-decoder or a decoder."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from regard.checkpoint.model_folder import AnswerFormat
from regard.data.question_template import QuestionTemplate, check_question_format
from regard.tasks.answer import AnswerOptions, QuestionAnswer
from regard.tasks.generate import GenerateOptions
from regard.tasks.generated_text import GeneratedText
from regard.tasks.generator import Generator
from regard.tasks.inputs import TextPair, check_iterable
from regard.tasks.model_parts import ModelParts
from regard.tasks.sentences import CHARACTERS_PER_TOKEN, split_to_fit
from regard.tasks.translate import TranslateOptions
from regard.tasks.translator import Translator
from regard.training.task import BUFFER_SIZE
from regard.transformer.interface import Reads

DEFAULT_FORMAT = AnswerFormat(input="question: {question} context: {context}", no_answer="unanswerable")
"""The format of a model that stores none: T5's for SQuAD."""


class GenerativeAnswerer:
    """A network that generates text, its tokenizer and the format of its input, ready to answer questions."""

    def __init__(self, model: ModelParts, options: AnswerOptions) -> None:
        if options.no_answer_threshold is not None:
            raise ValueError("no_answer_threshold is for networks that extract answers; this one generates them")
        self.format = model.info.get("answer_format", DEFAULT_FORMAT)
        if options.format is not None:
            check_question_format(options.format)
            self.format = AnswerFormat(input=options.format, no_answer=self.format["no_answer"])
        length, beam, n_best = options.max_answer_length, options.beam, options.n_best
        self.tokenizer = model.tokenizer
        self.writer: Translator | Generator
        if model.network.reads is Reads.SOURCE_AND_TARGET:
            self.writer = Translator(
                model.network,
                model.tokenizer,
                model.generation_config,
                TranslateOptions(prefix="", beam=beam, n_best=n_best, max_new_tokens=length),
            )
            self.max_length = self.writer.max_source_length
            self.writer.max_source_length = None  # the windows fit; translations of their parts would be no answers
        else:
            self.writer = Generator(
                model.network,
                model.tokenizer,
                model.generation_config,
                GenerateOptions(beam=beam, n_best=n_best, max_new_tokens=length, stop=("\n",)),
            )
            self.max_length = self.writer.max_length and max(1, self.writer.max_length - length)

    def run(self, inputs: Iterable[TextPair], *, buffer_size: int = BUFFER_SIZE) -> Iterator[QuestionAnswer]:
        """Answer every question about its context; results come in the order of the inputs.

        A context that is too long for the network is read in windows of whole sentences; the most probable answer of
        all windows counts.
        """
        check_iterable(inputs)
        num_windows: deque[int] = deque()
        answers: list[QuestionAnswer] = []
        for result in self.writer.run(self._texts(inputs, num_windows), buffer_size=buffer_size):
            answers.append(self._answer(result))
            if len(answers) == num_windows[0]:
                yield _merge_windows(answers, num_windows.popleft())
                answers = []

    def _texts(self, inputs: Iterable[TextPair], num_windows: deque[int]) -> Iterator[str]:
        """Yield the texts of all windows of each input, and append their number to `num_windows`."""
        for question, context in inputs:
            spans = list(split_to_fit(context, partial(self._fits, question))) or [(0, 0)]
            num_windows.append(len(spans))
            for start, end in spans:
                yield self._format(question, context[start:end])

    def _format(self, question: str, context: str) -> str:
        return QuestionTemplate(self.format["input"]).source(question, context)

    def _fits(self, question: str, context: str) -> bool:
        if self.max_length is None:
            return True
        if len(context) > CHARACTERS_PER_TOKEN * self.max_length:
            return False
        return len(self.tokenizer.encode_batch_ids([self._format(question, context)])[0]) <= self.max_length

    def _answer(self, result: GeneratedText) -> QuestionAnswer:
        text = result.text.strip()
        answer = QuestionAnswer(
            text="" if text == self.format["no_answer"] else text,
            score=math.exp(sum(result.token_scores)),
            truncated=result.truncated,
        )
        return replace(answer, alternatives=tuple(self._answer(other) for other in result.alternatives))


def _merge_windows(answers: Sequence[QuestionAnswer], num_windows: int) -> QuestionAnswer:
    """Return the most probable answer; "no answer" only if no window has one."""
    best = max(answers, key=lambda answer: (bool(answer.text), answer.score))
    return replace(best, windows=num_windows, truncated=sum(answer.truncated for answer in answers))
