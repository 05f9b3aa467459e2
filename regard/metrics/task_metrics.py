"""Metrics of classification, tagging and question answering, as the standard scripts define them. Range: 0 to 1.

labels      accuracy, and macro-averaged F1
tags        precision, recall and F1 of entities with exact boundaries and type, micro-averaged (CoNLL script, seqeval)
answers     exact match and token F1 (SQuAD 2.0 script, which includes questions without an answer)
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)

ENTITY_TAG = re.compile(r"([BIESLU])-(.+)", re.DOTALL)
"""Prefix and type of a tag that marks an entity."""

Entity = tuple[str, int, int]
"""Type, index of the first word, index of the last word."""


def f1(correct: int, predicted: int, actual: int) -> float:
    """Harmonic mean of precision (correct / predicted) and recall (correct / actual); 0 if nothing is correct."""
    return 2 * correct / (predicted + actual) if correct else 0.0


def classification_metrics(references: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Compute accuracy and macro F1: the mean F1 of all labels that occur in references or predictions."""
    correct = Counter(
        reference for reference, prediction in zip(references, predictions, strict=True) if reference == prediction
    )
    actual, predicted = Counter(references), Counter(predictions)
    f1_scores = [f1(correct[label], predicted[label], actual[label]) for label in {*actual, *predicted}]
    return {
        "accuracy": correct.total() / max(1, len(references)),
        "macro_f1": sum(f1_scores) / max(1, len(f1_scores)),
    }


def entity_metrics(references: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]]) -> dict[str, float]:
    """Compute precision, recall and F1 of entities over all sentences. Type, first and last word must match."""
    correct = predicted = actual = 0
    for reference_tags, predicted_tags in zip(references, predictions, strict=True):
        reference, prediction = {*entities(reference_tags)}, {*entities(predicted_tags)}
        correct += len(reference & prediction)
        predicted += len(prediction)
        actual += len(reference)
    return {
        "precision": correct / max(1, predicted),
        "recall": correct / max(1, actual),
        "f1": f1(correct, predicted, actual),
    }


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence with BIO, IOB1, BIOES or BILOU tags, as the CoNLL script defines them.

    A word continues the entity of the previous word if the previous prefix is B or I, its own prefix is I, E or L, and
    both types are equal. Any other word with a type starts an entity, because predicted tags may violate the scheme.
    """
    result: list[Entity] = []
    previous_prefix, previous_type = "O", ""
    for index, tag in enumerate(tags):
        match = ENTITY_TAG.fullmatch(tag)
        prefix, entity_type = match.groups() if match else ("O", "")
        if prefix != "O":
            continues = previous_prefix in ("B", "I") and prefix in ("I", "E", "L") and entity_type == previous_type
            start = result.pop()[1] if continues else index
            result.append((entity_type, start, index))
        previous_prefix, previous_type = prefix, entity_type
    return result


def squad_metrics(references: Sequence[Sequence[str]], predictions: Sequence[str]) -> dict[str, float]:
    """Compute exact match and token F1, each the maximum over the reference answers. No answer is the empty string."""
    exact = total_f1 = 0.0
    for answers, prediction in zip(references, predictions, strict=True):
        nonempty = [answer for answer in answers if normalize_answer(answer)] or [""]
        exact += max(normalize_answer(answer) == normalize_answer(prediction) for answer in nonempty)
        total_f1 += max(token_f1(answer, prediction) for answer in nonempty)
    return {"exact_match": exact / max(1, len(predictions)), "f1": total_f1 / max(1, len(predictions))}


def token_f1(reference: str, prediction: str) -> float:
    """F1 of the words of two answers. An empty answer matches only an empty answer."""
    actual, predicted = normalize_answer(reference).split(), normalize_answer(prediction).split()
    if not actual or not predicted:
        return float(actual == predicted)
    return f1((Counter(actual) & Counter(predicted)).total(), len(predicted), len(actual))


def normalize_answer(answer: str) -> str:
    """Normalize an answer for comparison: lower case, no punctuation, no articles (a, an, the), single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())
