"""Metrics of labels, tags and answers: each against its definition, and against the standard script if installed."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics import task_metrics

BIO = ["O", "B-a", "I-a", "B-b", "I-b"]
PREFIXES = st.sampled_from("BIES")
TAGS = st.one_of(
    st.just("O"), st.builds(lambda prefix, name: f"{prefix}-{name}", PREFIXES, st.sampled_from(["a", "b-c"]))
)


def sentences_of(tags):
    """Two lists of equally many sentences, each as long as its counterpart."""
    pair = st.integers(0, 8).flatmap(lambda n: st.tuples(*2 * [st.lists(tags, min_size=n, max_size=n)]))
    return st.lists(pair, min_size=1, max_size=5).map(lambda found: tuple(map(list, zip(*found, strict=True))))


def conll(tags):
    """The rules of CoNLL-2000's script: where a chunk ends and where one starts, from two neighbouring tags."""
    chunks, start = [], None
    previous, previous_type = "O", ""
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, entity_type = tag.partition("-")
        ends = (previous, prefix) in {(b, n) for b in "BI" for n in "BSO"} or previous in ("E", "S")
        ends = ends or (previous != "O" and previous_type != entity_type)
        starts = prefix in ("B", "S") or (previous in ("E", "S", "O") and prefix in ("E", "I"))
        starts = starts or (prefix != "O" and previous_type != entity_type)
        if ends and start is not None:
            chunks.append((previous_type, start, index - 1))
            start = None
        if starts:
            start = index
        previous, previous_type = prefix, entity_type
    return chunks


@given(st.lists(TAGS, max_size=12))
def test_entities_are_those_of_the_script_whatever_the_network_says(tags):
    assert task_metrics.entities(tags) == conll(tags)


@pytest.mark.parametrize(
    "tags",
    [
        ["B-per", "I-per", "B-loc", "B-loc", "O"],
        ["I-per", "I-per", "I-loc", "B-loc", "O"],
        ["B-per", "E-per", "S-loc", "S-loc", "O"],
        ["B-per", "L-per", "U-loc", "U-loc", "O"],
    ],
    ids=["BIO", "IOB1", "BIOES", "BILOU"],
)
def test_the_same_entities_in_all_schemes(tags):
    assert task_metrics.entities(tags) == [("per", 0, 1), ("loc", 2, 2), ("loc", 3, 3)]


def test_an_entity_is_right_only_whole_and_with_its_type():
    references = [["B-a", "I-a", "O", "B-b"], ["B-a", "O"]]
    predictions = [["B-a", "O", "O", "B-b"], ["B-b", "I-a"]]  # too short; correct; wrong type, and a spurious entity
    assert task_metrics.entity_metrics(references, predictions) == {
        "precision": 1 / 4,
        "recall": 1 / 3,
        "f1": pytest.approx(2 / 7),
    }
    assert task_metrics.entity_metrics(references, references) == {"precision": 1, "recall": 1, "f1": 1}
    assert task_metrics.entity_metrics([["O"]], [["O"]])["f1"] == 0


@given(sentences_of(st.sampled_from(BIO)))
def test_entities_as_seqeval_counts_them(pair):
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval, the oracle, is not installed")
    references, predictions = pair
    found = task_metrics.entity_metrics(references, predictions)
    assert found["f1"] == pytest.approx(metrics.f1_score(references, predictions, zero_division=0))
    assert found["precision"] == pytest.approx(metrics.precision_score(references, predictions, zero_division=0))
    assert found["recall"] == pytest.approx(metrics.recall_score(references, predictions, zero_division=0))


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
    found = task_metrics.classification_metrics(references, predictions)
    assert found["macro_f1"] == pytest.approx(sum(each) / len(each))
    assert found["accuracy"] == pytest.approx(
        sum(t == s for t, s in zip(references, predictions, strict=True)) / len(references)
    )


@given(LABELS)
def test_labels_as_scikit_learn_counts_them(pair):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn, the oracle, is not installed")
    references, predictions = pair
    expected = metrics.f1_score(references, predictions, average="macro", zero_division=0)
    assert task_metrics.classification_metrics(references, predictions)["macro_f1"] == pytest.approx(expected)


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
    found = task_metrics.squad_metrics([[answer] if answer else []], [text])
    assert found == {"exact_match": exact, "f1": pytest.approx(f1)}


def test_the_true_answer_that_fits_best_counts():
    references = [["Denver", "Denver Broncos", "the Broncos"], []]
    assert task_metrics.squad_metrics(references, ["broncos", "no"]) == {"exact_match": 0.5, "f1": 0.5}
    assert task_metrics.squad_metrics([["the"]], [""]) == {
        "exact_match": 1,
        "f1": 1,
    }  # it is empty after normalization, as in the script
    assert task_metrics.squad_metrics([["the", "cat"]], [""]) == {
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
    found = task_metrics.squad_metrics([[answer]], [text])
    assert found["f1"] == pytest.approx(expected)
    assert found["exact_match"] == (true == predictions)
