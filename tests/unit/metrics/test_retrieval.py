"""Rank correlation equals scipy's, recall its definition."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.metrics.rank_correlation import mean_ranks, spearman
from regard.metrics.retrieval import recall_at_k

VALUES = st.lists(st.integers(-4, 4), min_size=3, max_size=30)


@given(st.data())
def test_rank_correlation_equals_that_of_scipy(data):
    left = data.draw(VALUES)
    right = data.draw(st.lists(st.floats(-1e3, 1e3), min_size=len(left), max_size=len(left)))
    assert np.array_equal(mean_ranks(right), scipy.stats.rankdata(right))
    assume(len({*left}) > 1 and len({*right}) > 1)
    assert spearman(left, right) == pytest.approx(scipy.stats.spearmanr(left, right).statistic, abs=1e-12)


def test_equal_values_have_no_correlation_and_lengths_must_agree():
    assert spearman([1, 1, 1], [1, 2, 3]) == 0
    with pytest.raises(ValueError, match="3 and 2 values"):
        spearman([1, 2, 3], [1, 2])


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_recall_equals_its_definition(queries, items, seed):
    rng = np.random.default_rng(seed)
    similarities = rng.integers(0, 4, (queries, items)).astype(float)  # with ties
    relevant = [rng.choice(items, rng.integers(1, items + 1), replace=False).tolist() for _ in range(queries)]
    order = np.argsort(-similarities, axis=1, kind="stable")
    for k in (1, 2, 10):
        hits = [bool({*order[row, :k].tolist()} & {*relevant[row]}) for row in range(queries)]
        assert recall_at_k(similarities, relevant, (k,))[f"recall@{k}"] == pytest.approx(np.mean(hits))


def test_each_query_needs_a_relevant_item():
    with pytest.raises(ValueError, match="2 queries, but relevant items for 1"):
        recall_at_k(np.zeros((2, 3)), [[0], []])
