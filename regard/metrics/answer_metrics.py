"""Metrics of answers as SQuAD's scripts define them: exact match, token F1, and the best threshold for no answer."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.metrics.label_metrics import f1

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_metrics(references: Sequence[Sequence[str]], predictions: Sequence[str]) -> dict[str, float]:
    """Compute exact match and token F1, each the maximum over the reference answers. No answer is the empty string."""
    scores = [answer_scores(answers, text) for answers, text in zip(references, predictions, strict=True)]
    exact, f1_scores = [score[0] for score in scores], [score[1] for score in scores]
    return {"exact_match": sum(exact) / max(1, len(exact)), "f1": sum(f1_scores) / max(1, len(f1_scores))}


def answer_scores(answers: Sequence[str], prediction: str) -> tuple[float, float]:
    """Return exact match and token F1 of one prediction, each the maximum over the reference answers."""
    nonempty = [answer for answer in answers if normalize_answer(answer)] or [""]
    exact = max(normalize_answer(answer) == normalize_answer(prediction) for answer in nonempty)
    return float(exact), max(token_f1(answer, prediction) for answer in nonempty)


def token_f1(reference: str, prediction: str) -> float:
    """F1 of the words of two answers. An empty answer matches only an empty answer."""
    actual, predicted = normalize_answer(reference).split(), normalize_answer(prediction).split()
    if not actual or not predicted:
        return float(actual == predicted)
    return f1((Counter(actual) & Counter(predicted)).total(), len(predicted), len(actual))


def normalize_answer(answer: str) -> str:
    """Normalize an answer for comparison: lower case, no punctuation, no articles (a, an, the), single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


@dataclass(frozen=True)
class NoAnswerThreshold:
    """A threshold for no answer, and the metrics with it."""

    threshold: float
    """A prediction becomes no answer if the margin of no answer is above it."""
    metrics: dict[str, float]
    """Exact match and F1."""


def best_no_answer_threshold(
    references: Sequence[Sequence[str]], predictions: Sequence[str], margins: Sequence[float]
) -> NoAnswerThreshold:
    """Return the threshold with the highest F1.

    `margins` are the scores of no answer, minus those of the predictions. The candidates are all margins, and a lower
    number, with which nothing is answered.
    """
    answered = [answer_scores(answers, text) for answers, text in zip(references, predictions, strict=True)]
    unanswered = [answer_scores(answers, "") for answers in references]
    best_f1 = total = sum(score[1] for score in unanswered)
    threshold = min(margins, default=0.0) - 1
    order = sorted(range(len(margins)), key=margins.__getitem__)
    for place, index in enumerate(order):
        total += answered[index][1] - unanswered[index][1]
        is_last = place + 1 == len(order) or margins[order[place + 1]] > margins[index]  # equal margins go together
        if is_last and total > best_f1 + 1e-12:
            best_f1, threshold = total, margins[index]
    kept = ["" if margin > threshold else text for text, margin in zip(predictions, margins, strict=True)]
    return NoAnswerThreshold(threshold, squad_metrics(references, kept))
