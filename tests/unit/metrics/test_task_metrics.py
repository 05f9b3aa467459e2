"""Scores of labels, tags and answers: each against its definition written out, and its script where installed."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics import task_metrics

BIO = ["O", "B-a", "I-a", "B-b", "I-b"]
LETTERS = st.sampled_from("BIES")
TAGS = st.one_of(
    st.just("O"), st.builds(lambda letter, kind: f"{letter}-{kind}", LETTERS, st.sampled_from(["a", "b-c"]))
)


def sentences_of(tags):
    """Two lists of as many sentences, each as long as its counterpart."""
    pair = st.integers(0, 8).flatmap(lambda n: st.tuples(*2 * [st.lists(tags, min_size=n, max_size=n)]))
    return st.lists(pair, min_size=1, max_size=5).map(lambda found: tuple(map(list, zip(*found, strict=True))))


def conll(tags):
    """CoNLL-2000's script in its own terms: where a chunk ends, and where one begins, seen from two neighbours."""
    found, begun = [], None
    before, kind_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        now, _, kind = tag.partition("-")
        ends = (before, now) in {(b, n) for b in "BI" for n in "BSO"} or before in ("E", "S")
        ends = ends or (before != "O" and kind_before != kind)
        begins = now in ("B", "S") or (before in ("E", "S", "O") and now in ("E", "I"))
        begins = begins or (now != "O" and kind_before != kind)
        if ends and begun is not None:
            found.append((kind_before, begun, place - 1))
            begun = None
        if begins:
            begun = place
        before, kind_before = now, kind
    return found


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
    truth = [["B-a", "I-a", "O", "B-b"], ["B-a", "O"]]
    said = [["B-a", "O", "O", "B-b"], ["B-b", "I-a"]]  # short; right; wrong type, and one that is not there
    assert task_metrics.of_entities(truth, said) == {"precision": 1 / 4, "recall": 1 / 3, "f1": pytest.approx(2 / 7)}
    assert task_metrics.of_entities(truth, truth) == {"precision": 1, "recall": 1, "f1": 1}
    assert task_metrics.of_entities([["O"]], [["O"]])["f1"] == 0


@given(sentences_of(st.sampled_from(BIO)))
def test_entities_as_seqeval_counts_them(pair):
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval, the oracle, is not installed")
    truth, said = pair
    found = task_metrics.of_entities(truth, said)
    assert found["f1"] == pytest.approx(metrics.f1_score(truth, said, zero_division=0))
    assert found["precision"] == pytest.approx(metrics.precision_score(truth, said, zero_division=0))
    assert found["recall"] == pytest.approx(metrics.recall_score(truth, said, zero_division=0))


LABELS = st.lists(st.tuples(*2 * [st.sampled_from("abcd")]), min_size=1, max_size=30).map(
    lambda found: tuple(map(list, zip(*found, strict=True)))
)


@given(LABELS)
def test_labels_by_their_definition(pair):
    truth, said = pair
    each = []
    for label in sorted({*truth, *said}):
        hit = sum(t == label == s for t, s in zip(truth, said, strict=True))
        precision = hit / said.count(label) if label in said else 0
        recall = hit / truth.count(label) if label in truth else 0
        each.append(2 * precision * recall / (precision + recall) if precision + recall else 0)
    found = task_metrics.of_labels(truth, said)
    assert found["macro_f1"] == pytest.approx(sum(each) / len(each))
    assert found["accuracy"] == pytest.approx(sum(t == s for t, s in zip(truth, said, strict=True)) / len(truth))


@given(LABELS)
def test_labels_as_scikit_learn_counts_them(pair):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn, the oracle, is not installed")
    truth, said = pair
    expected = metrics.f1_score(truth, said, average="macro", zero_division=0)
    assert task_metrics.of_labels(truth, said)["macro_f1"] == pytest.approx(expected)


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
    found = task_metrics.of_answers([[answer] if answer else []], [text])
    assert found == {"exact": exact, "f1": pytest.approx(f1)}


def test_the_true_answer_that_fits_best_counts():
    truth = [["Denver", "Denver Broncos", "the Broncos"], []]
    assert task_metrics.of_answers(truth, ["broncos", "no"]) == {"exact": 0.5, "f1": 0.5}
    assert task_metrics.of_answers([["the"]], [""]) == {"exact": 1, "f1": 1}  # nothing is left of it, as in the script
    assert task_metrics.of_answers([["the", "cat"]], [""]) == {"exact": 0, "f1": 0}  # and something of the other


@given(*2 * [st.text(alphabet="aAthe nx.,'é1\t", max_size=20)])
def test_answers_by_their_definition(answer, text):
    """Lower case, then punctuation, then articles, then blanks, as SQuAD's script does it, step by step."""

    def words(one):
        letters = "".join(letter for letter in one.lower() if letter not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", letters).split()

    true, said = words(answer), words(text)
    same = sum(min(true.count(word), said.count(word)) for word in {*true})
    if not true or not said:
        expected = float(true == said)
    else:
        precision, recall = same / len(said), same / len(true)
        expected = 2 * precision * recall / (precision + recall) if same else 0.0
    found = task_metrics.of_answers([[answer]], [text])
    assert found["f1"] == pytest.approx(expected)
    assert found["exact"] == (true == said)
