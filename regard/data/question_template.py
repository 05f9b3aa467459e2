"""Questions and contexts as one text, for networks that generate answers.

template = QuestionTemplate("question: {question} context: {context}")
template.source("Who runs?", "Anna runs.")      # question: Who runs? context: Anna runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.example import Question


@dataclass(frozen=True)
class QuestionTemplate:
    """The format of question and context, and what stands for no answer."""

    format: str
    """The input, with {question} and {context}. Other braces have no meaning."""
    no_answer: str = "unanswerable"
    """The output for questions without an answer."""

    def source(self, question: str, context: str) -> str:
        """Return the input for a question and a context."""
        before, _, after = self.format.partition("{question}")
        if "{context}" in before:
            return before.replace("{context}", context) + question + after
        return before + question + after.replace("{context}", context)

    def target(self, example: Question) -> str:
        """Return the output for an example: its first answer."""
        return example.answers[0].text if example.answers else self.no_answer

    def as_json(self) -> list[str]:
        """Return the fields, for a cache key."""
        return [self.format, self.no_answer]


def check_question_format(template: str) -> None:
    """Raise a ValueError if a format does not have both texts, once each."""
    for name in ("{question}", "{context}"):
        if template.count(name) != 1:
            raise ValueError(f"expected {name} once in the format, found {template!r}")
