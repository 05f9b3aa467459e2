"""Metrics of labels and scores: against their definitions, scikit-learn and scipy."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics import label_metrics

LABELS = st.lists(st.tuples(*2 * [st.sampled_from("abcd")]), min_size=1, max_size=30).map(
    lambda found: tuple(map(list, zip(*found, strict=True)))
)


@given(LABELS)
def test_labels_by_their_definition(pair):
    references, predictions = pair
    each = []
    for label in sorted({*references, *predictions}):
        hit = sum(t == label == s for t, s in zip(references, predictions, strict=True))
        precision = hit / predictions.count(label) if label in predictions else 0
        recall = hit / references.count(label) if label in references else 0
        each.append(2 * precision * recall / (precision + recall) if precision + recall else 0)
    found = label_metrics.classification_metrics(references, predictions)
    assert found["macro_f1"] == pytest.approx(sum(each) / len(each))
    assert found["accuracy"] == pytest.approx(
        sum(t == s for t, s in zip(references, predictions, strict=True)) / len(references)
    )


@pytest.mark.filterwarnings("ignore")
@given(LABELS)
def test_labels_as_scikit_learn_counts_them(pair):
    references, predictions = pair
    expected = sklearn.metrics.f1_score(references, predictions, average="macro", zero_division=0)
    found = label_metrics.classification_metrics(references, predictions)
    assert found["macro_f1"] == pytest.approx(expected)
    assert found["matthews"] == pytest.approx(sklearn.metrics.matthews_corrcoef(references, predictions))


LABEL_SETS = st.lists(st.tuples(*2 * [st.sets(st.sampled_from("abc"))]), min_size=1, max_size=20)


@given(LABEL_SETS)
def test_several_labels_as_scikit_learn_counts_them(pairs):
    references, predictions = zip(*pairs, strict=True)
    found = label_metrics.multi_label_metrics(references, predictions)
    labels = sorted({label for pair in pairs for side in pair for label in side})
    matrices = [[[label in chosen for label in labels] for chosen in side] for side in (references, predictions)]
    expected, predicted = (np.array(matrix, dtype=int).reshape(len(pairs), len(labels)) for matrix in matrices)
    assert found["exact_match"] == pytest.approx((expected == predicted).all(axis=1).mean())
    for average in ("micro", "macro") if labels else ():
        score = sklearn.metrics.f1_score(expected, predicted, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(score)


VALUES = st.lists(st.tuples(*2 * [st.integers(-4, 4).map(float)]), min_size=2, max_size=30)


@pytest.mark.filterwarnings("ignore")
@given(VALUES)
def test_correlations_as_scipy_computes_them(pairs):
    references, predictions = zip(*pairs, strict=True)
    found = label_metrics.correlation_metrics(references, predictions)
    for name, function in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        expected = function(references, predictions)[0]
        assert found[name] == pytest.approx(0.0 if np.isnan(expected) else expected, abs=1e-9)
    assert found["mse"] == pytest.approx(sklearn.metrics.mean_squared_error(references, predictions))


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=40), st.integers(1, 20))
def test_calibration_error_by_its_definition(pairs, bins):
    correct, confidences = zip(*pairs, strict=True)
    expected = 0.0
    for number in range(bins):
        inside = [
            (hit, confidence)
            for hit, confidence in pairs
            if number == min(max(int(np.ceil(confidence * bins)) - 1, 0), bins - 1)
        ]
        if inside:
            accuracy, confidence = np.mean(inside, axis=0)
            expected += len(inside) / len(pairs) * abs(accuracy - confidence)
    assert label_metrics.calibration_error(correct, confidences, bins) == pytest.approx(expected, abs=1e-12)


def test_calibration_error_of_known_cases():
    assert label_metrics.calibration_error([True, True, False, False], [0.5] * 4) == 0
    assert label_metrics.calibration_error([False], [1.0]) == 1
    assert label_metrics.calibration_error([True, False], [0.9, 0.9]) == pytest.approx(0.4)
