"""ROUGE against the package rouge-score, on random texts and known cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from regard.metrics.rouge import rouge_metrics

KINDS = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
TEXT = st.lists(st.sampled_from(["a", "b", "c", "Cat's", "3.5", "ü", ".", "\n", "x-y"]), max_size=14).map(" ".join)


@given(st.lists(st.tuples(st.lists(TEXT, min_size=1, max_size=3), TEXT), min_size=1, max_size=4))
def test_scores_of_rouge_score(pairs):
    scorer = rouge_scorer.RougeScorer(KINDS, use_stemmer=False)
    each = [scorer.score_multi(references, summary) for references, summary in pairs]
    found = rouge_metrics([references for references, _ in pairs], [summary for _, summary in pairs])
    assert list(found) == KINDS
    for kind in KINDS:
        expected = sum(scores[kind].fmeasure for scores in each) / len(each)
        assert found[kind] == pytest.approx(100 * expected)


def test_known_scores():
    reference, summary = "police killed the gunman", "police kill the gunman"
    found = rouge_metrics([[reference]], [summary])
    assert found["rouge1"] == pytest.approx(75)
    assert found["rougeL"] == pytest.approx(75)
    assert found["rouge2"] == pytest.approx(100 / 3)
    assert rouge_metrics([["x", reference]], [reference])["rouge2"] == 100
    assert rouge_metrics([[""]], [""])["rouge1"] == 0
