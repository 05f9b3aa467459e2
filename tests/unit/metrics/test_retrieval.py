"""Recall equals its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics.retrieval import recall_at_k


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
