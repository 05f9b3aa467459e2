"""The readers on real datasets: the published numbers of examples, and errors with the line."""

import os
from pathlib import Path

import pytest

from regard.data.formats import Cells, JsonLines, Quoting, Table
from regard.data.reader import read
from regard.tokenization.text_files import DataError

DATA = Path(os.environ.get("REGARD_DATA", ""))
pytestmark = pytest.mark.skipif(not os.environ.get("REGARD_DATA"), reason="REGARD_DATA is not set")

STS = Table(separator="\t", columns={"label": 4, "text": 5, "pair": 6}, cells=Cells.AT_LEAST)
TREC = Table(separator=" ", columns={"label": 0, "text": 1}, cells=Cells.REST, quoting=Quoting.NONE)
COUNTS = [
    ("translate", ["multi30k/train.en", "multi30k/train.de"], None, 29_000),
    pytest.param("translate", ["tatoeba-en-de/en-de.tsv"], None, 169_813, marks=pytest.mark.slow),
    pytest.param("classify", ["sst2/train.tsv"], Table(columns={"text": "sentence"}), 67_349, marks=pytest.mark.slow),
    ("classify", ["sst2/dev.tsv"], Table(columns={"text": "content"}), 872),
    ("classify", ["trec/test.txt"], TREC, 500),
    ("embed", ["stsb/sts-train.csv"], STS, 5749),
    ("embed", ["stsb/sts-dev.csv"], STS, 1500),
    ("tag", ["wnut17/wnut17train.conll"], None, 3394),
    ("tag", ["wnut17/emerging.dev.conll"], None, 1009),
    ("answer", ["xquad/xquad.de.json"], None, 1190),
    ("summarize", ["scitldr/train.jsonl"], JsonLines(keys={"target": "target.0"}, join=" "), 1992),
]


@pytest.mark.parametrize(("task", "files", "form", "count"), COUNTS)
def test_counts(task, files, form, count):
    assert sum(1 for _ in read(task, [DATA / file for file in files], form)) == count


def test_every_answer_of_xquad_stands_where_it_says():
    for language in ("en", "de"):
        for one in read("answer", [DATA / f"xquad/xquad.{language}.json"]):
            assert one.answers
            for answer in one.answers:
                assert one.context[answer.start :].startswith(answer.text)


def test_scores_are_in_their_range():
    assert all(0 <= one.label <= 5 for one in read("embed", [DATA / "stsb/sts-train.csv"], STS))


def test_a_set_of_mixed_encodings_is_refused_with_the_line():
    with pytest.raises(DataError, match=r"train\.txt, line 66: byte 60 .*b'\\xf0'.* is not valid UTF-8"):
        list(read("classify", [DATA / "trec/train.txt"], TREC))
