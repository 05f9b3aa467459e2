"""Metrics of labels and scores, as scikit-learn and scipy define them.

one label       accuracy, macro-averaged F1, Matthews correlation, expected calibration error
several labels  exact match of all labels, micro- and macro-averaged F1
a score         Spearman and Pearson correlation
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

NUM_BINS = 15
"""Number of bins of the expected calibration error, as in Guo et al. 2017."""


def f1(correct: int, predicted: int, actual: int) -> float:
    """Harmonic mean of precision (correct / predicted) and recall (correct / actual); 0 if nothing is correct."""
    return 2 * correct / (predicted + actual) if correct else 0.0


def classification_metrics(references: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Compute accuracy, Matthews correlation, and the mean F1 of all labels that occur in references or predictions."""
    correct = Counter(
        reference for reference, prediction in zip(references, predictions, strict=True) if reference == prediction
    )
    actual, predicted = Counter(references), Counter(predictions)
    f1_scores = [f1(correct[label], predicted[label], actual[label]) for label in {*actual, *predicted}]
    return {
        "accuracy": correct.total() / max(1, len(references)),
        "macro_f1": sum(f1_scores) / max(1, len(f1_scores)),
        "matthews": matthews(references, predictions),
    }


def matthews(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Matthews correlation for any number of labels (Gorodkin 2004); 0 if all references or predictions are equal.

    The covariance of references and predictions as one-hot vectors, divided by both standard deviations.
    """
    actual, predicted, count = Counter(references), Counter(predictions), len(references)
    correct = sum(reference == prediction for reference, prediction in zip(references, predictions, strict=True))
    covariance = correct * count - sum(actual[label] * predicted[label] for label in actual)
    variances = [count**2 - sum(number**2 for number in counts.values()) for counts in (actual, predicted)]
    return covariance / math.sqrt(variances[0] * variances[1]) if all(variances) else 0.0


def calibration_error(correct: Sequence[bool], confidences: Sequence[float], bins: int = NUM_BINS) -> float:
    """Expected calibration error: the mean difference between confidence and accuracy in bins of equal width.

    A bin holds the predictions with a confidence above its lower and up to its upper edge.
    """
    confidence, hit = np.asarray(confidences, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    bin_index = np.clip(np.ceil(confidence * bins) - 1, 0, bins - 1).astype(np.int64)
    differences = np.bincount(bin_index, weights=hit - confidence, minlength=bins)
    return float(np.abs(differences).sum() / max(1, len(hit)))


def multi_label_metrics(
    references: Sequence[Collection[str]], predictions: Sequence[Collection[str]]
) -> dict[str, float]:
    """Compute the share of texts with exactly the right labels, and micro- and macro-averaged F1."""
    correct: Counter[str] = Counter()
    for reference, prediction in zip(references, predictions, strict=True):
        correct.update({*reference} & {*prediction})
    actual = Counter(label for labels in references for label in {*labels})
    predicted = Counter(label for labels in predictions for label in {*labels})
    f1_scores = [f1(correct[label], predicted[label], actual[label]) for label in {*actual, *predicted}]
    exact = sum({*one} == {*other} for one, other in zip(references, predictions, strict=True))
    return {
        "exact_match": exact / max(1, len(references)),
        "micro_f1": f1(correct.total(), predicted.total(), actual.total()),
        "macro_f1": sum(f1_scores) / max(1, len(f1_scores)),
    }


def correlation_metrics(references: Sequence[float], predictions: Sequence[float]) -> dict[str, float]:
    """Compute Spearman and Pearson correlation, and the mean squared error."""
    expected, found = np.asarray(references, dtype=np.float64), np.asarray(predictions, dtype=np.float64)
    return {
        "spearman": spearman(references, predictions),
        "pearson": _pearson(expected, found),
        "mse": float(np.mean((expected - found) ** 2)) if len(expected) else 0.0,
    }


def spearman(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Spearman rank correlation; equal values share the mean of their ranks. 0 if all values of one side are equal."""
    return _pearson(_ranks(np.asarray(references)), _ranks(np.asarray(predictions)))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(counts)
    return (last_ranks - (counts - 1) / 2)[inverse]


def _pearson(left: np.ndarray, right: np.ndarray) -> float:
    left, right = left - left.mean() if len(left) else left, right - right.mean() if len(right) else right
    scale = math.sqrt(float(left @ left) * float(right @ right))
    return float(left @ right) / scale if scale > 0 else 0.0
