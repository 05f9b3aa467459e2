"""Temperature scaling (Guo et al. 2017): one number that makes the probabilities of a classifier fit its accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

GOLDEN = (5**0.5 - 1) / 2
LOWEST, HIGHEST = 0.05, 20.0
"""Range of the temperature. Without any error on the validation data, lower would always be better."""


def fit_temperature(probabilities: Sequence[Mapping[str, float]], labels: Sequence[str]) -> float:
    """Return the temperature that minimizes the mean negative log-likelihood of the labels; 1 without examples.

    The logits are the logarithms of the probabilities, which differ from those of the network by a constant only. The
    likelihood has one maximum as a function of 1 / temperature, which a golden-section search finds.
    """
    if not labels:
        return 1.0
    names = list(probabilities[0])
    values = np.array([[row[name] for name in names] for row in probabilities], dtype=np.float64)
    logits, targets = np.log(np.maximum(values, 1e-300)), np.array([names.index(label) for label in labels])

    def loss(inverse: float) -> float:
        scaled = logits * inverse
        highest = scaled.max(axis=1)
        log_sum = highest + np.log(np.exp(scaled - highest[:, None]).sum(axis=1))
        return float((log_sum - scaled[np.arange(len(targets)), targets]).mean())

    low, high = 1 / HIGHEST, 1 / LOWEST
    while high - low > 1e-6:
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return round(2 / (low + high), 4)
