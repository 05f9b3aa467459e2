"""Metrics of answers: against their definitions, step by step as in SQuAD's script."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics import answer_metrics


@pytest.mark.parametrize(
    ("answer", "text", "exact", "f1"),
    [
        ("the Norman conquest", "Norman Conquest!", 1, 1),
        ("in the 10th century", "10th and 11th century", 0, 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3)),
        ("a theatre", "an Anthem", 0, 0),
        ("U.S.", "us", 1, 1),
        ("cat cat", "cat", 0, 2 / 3),
        ("", "", 1, 1),
        ("", "something", 0, 0),
        ("something", "", 0, 0),
    ],
)
def test_answers_one_by_one(answer, text, exact, f1):
    found = answer_metrics.squad_metrics([[answer] if answer else []], [text])
    assert found == {"exact_match": exact, "f1": pytest.approx(f1)}


def test_the_true_answer_that_fits_best_counts():
    references = [["Denver", "Denver Broncos", "the Broncos"], []]
    assert answer_metrics.squad_metrics(references, ["broncos", "no"]) == {"exact_match": 0.5, "f1": 0.5}
    assert answer_metrics.squad_metrics([["the"]], [""]) == {
        "exact_match": 1,
        "f1": 1,
    }  # it is empty after normalization, as in the script
    assert answer_metrics.squad_metrics([["the", "cat"]], [""]) == {
        "exact_match": 0,
        "f1": 0,
    }  # the other reference is not empty


@given(*2 * [st.text(alphabet="aAthe nx.,'é1\t", max_size=20)])
def test_answers_by_their_definition(answer, text):
    """Lower case, then punctuation, then articles, then spaces, step by step as in SQuAD's script."""

    def words(text):
        letters = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", letters).split()

    true, predictions = words(answer), words(text)
    same = sum(min(true.count(word), predictions.count(word)) for word in {*true})
    if not true or not predictions:
        expected = float(true == predictions)
    else:
        precision, recall = same / len(predictions), same / len(true)
        expected = 2 * precision * recall / (precision + recall) if same else 0.0
    found = answer_metrics.squad_metrics([[answer]], [text])
    assert found["f1"] == pytest.approx(expected)
    assert found["exact_match"] == (true == predictions)


ANSWERS = st.sampled_from(["cat", "cat dog", "dog", "bird"])
QUESTIONS = st.lists(
    st.tuples(st.lists(ANSWERS, max_size=2), ANSWERS, st.sampled_from([-2.0, -0.5, 0.0, 1.5])),
    min_size=1,
    max_size=12,
)


@given(QUESTIONS)
def test_the_best_threshold_by_trying_all(questions):
    references, texts, margins = zip(*questions, strict=True)

    def f1(threshold):
        kept = ["" if margin > threshold else text for text, margin in zip(texts, margins, strict=True)]
        return answer_metrics.squad_metrics(references, kept)["f1"]

    found = answer_metrics.best_no_answer_threshold(references, texts, margins)
    assert found.metrics["f1"] == pytest.approx(max(f1(threshold) for threshold in (-9.0, *margins)))
    assert found.metrics["f1"] == pytest.approx(f1(found.threshold))
