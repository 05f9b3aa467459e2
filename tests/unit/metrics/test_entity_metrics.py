"""Metrics of entities: each against its definition and against seqeval."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval import metrics as seqeval_metrics
from seqeval import scheme as seqeval_scheme

from regard.metrics import entity_metrics

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
    assert entity_metrics.entities(tags) == conll(tags)


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
    assert entity_metrics.entities(tags) == [("per", 0, 1), ("loc", 2, 2), ("loc", 3, 3)]


def test_an_entity_is_right_only_whole_and_with_its_type():
    references = [["B-a", "I-a", "O", "B-b"], ["B-a", "O"]]
    predictions = [["B-a", "O", "O", "B-b"], ["B-b", "I-a"]]  # too short; correct; wrong type, and a spurious entity
    assert entity_metrics.entity_metrics(references, predictions) == {
        "precision": 1 / 4,
        "recall": 1 / 3,
        "f1": pytest.approx(2 / 7),
    }
    assert entity_metrics.entity_metrics(references, references) == {"precision": 1, "recall": 1, "f1": 1}
    assert entity_metrics.entity_metrics([["O"]], [["O"]])["f1"] == 0


@given(sentences_of(st.sampled_from(BIO)))
def test_entities_as_seqeval_counts_them(pair):
    references, predictions = pair
    found = entity_metrics.entity_metrics(references, predictions)
    assert found["f1"] == pytest.approx(seqeval_metrics.f1_score(references, predictions, zero_division=0))
    assert found["precision"] == pytest.approx(
        seqeval_metrics.precision_score(references, predictions, zero_division=0)
    )
    assert found["recall"] == pytest.approx(seqeval_metrics.recall_score(references, predictions, zero_division=0))


SCHEMES = {"BIO": "IOB2", "BIOES": "IOBES", "BILOU": "BILOU"}
PREFIXES_OF = {"BIO": "BI", "BIOES": "BIES", "BILOU": "BILU"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(SCHEMES))
@given(data=st.data())
def test_complete_entities_as_seqeval_counts_them_strictly(name, data):
    tags = ["O", *(f"{prefix}-{kind}" for prefix in PREFIXES_OF[name] for kind in ("a", "b"))]
    references, predictions = data.draw(sentences_of(st.sampled_from(tags)))
    scheme = getattr(seqeval_scheme, SCHEMES[name])
    arguments = dict(mode="strict", scheme=scheme, zero_division=0)
    found = entity_metrics.entity_metrics(references, predictions, strict=name)
    assert found["f1"] == pytest.approx(seqeval_metrics.f1_score(references, predictions, **arguments))
    assert found["precision"] == pytest.approx(seqeval_metrics.precision_score(references, predictions, **arguments))
    assert found["recall"] == pytest.approx(seqeval_metrics.recall_score(references, predictions, **arguments))


@pytest.mark.filterwarnings("ignore")
@given(sentences_of(st.sampled_from(BIO)))
def test_each_type_as_seqeval_reports_it(pair):
    references, predictions = pair
    found = entity_metrics.entity_metrics_per_type(references, predictions)
    if not found:
        return  # seqeval has no report without entities
    report = seqeval_metrics.classification_report(references, predictions, output_dict=True, zero_division=0)
    assert found.keys() == report.keys() - {"micro avg", "macro avg", "weighted avg"}
    for kind, scores in found.items():
        assert [scores["precision"], scores["recall"], scores["f1"]] == pytest.approx(
            [report[kind]["precision"], report[kind]["recall"], report[kind]["f1-score"]]
        )
