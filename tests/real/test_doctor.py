"""The doctor on real datasets: its findings were checked by hand, and faults injected into copies are found."""

import json
import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from unit.doctor import corpora, faults

from regard.data.formats import Cells, Quoting, Table
from regard.doctor.examination import examine
from regard.doctor.split_reader import Split

DATA = Path(os.environ.get("REGARD_DATA", ""))
pytestmark = pytest.mark.skipif(
    not os.environ.get("REGARD_DATA"), reason="REGARD_DATA is not set to the folder of the datasets"
)

SST = Table(columns={"text": "content"})
SEEDS = st.integers(0, 2**32 - 1)
QUICK = dict(deadline=None, phases=[Phase.generate])
"""The datasets are large: failures are not shrunk."""


def lines_of(name):
    return (DATA / name).read_text(encoding="utf-8").split("\n")[:-1]


def findings_by_kind(report):
    return {finding.kind: list(finding.lines) for finding in report.findings}


def test_multi30k_val_has_no_fault():
    files = {Split.TRAIN: [DATA / "multi30k/val.en", DATA / "multi30k/val.de"]}
    assert findings_by_kind(examine("translate", files, max_length=64)) == {}


def test_sst2_dev_has_no_fault():
    report = examine("classify", {Split.TRAIN: [DATA / "sst2/dev.tsv"]}, file_format=SST)
    assert findings_by_kind(report) == {}
    assert report.labels == {"train": {"1": 444, "0": 428}}


def test_wnut17_dev():
    """Each finding was checked in the file."""
    lines = lines_of("wnut17/emerging.dev.conll")
    report = examine("tag", {Split.TRAIN: [DATA / "wnut17/emerging.dev.conll"]})
    assert report.ok
    assert findings_by_kind(report) == {
        "zero-width": [15556, 16730],
        "contradiction": [15421],
        "duplicate": [10936, 15317],
        "one-word-sentence": [14959],
    }
    assert "\u200b" in lines[15555]
    assert "\ufeff" in lines[16729]
    assert lines[3242:3247] == lines[10935:10940] != lines[15420:15425]  # Where's Kishan? A person, then a location
    assert [line.split()[0] for line in lines[3242:3247]] == [line.split()[0] for line in lines[15420:15425]]
    assert lines[14957] == lines[14959] == ""


def test_a_validation_set_in_the_training_data():
    english, german = DATA / "multi30k/train.en", DATA / "multi30k/train.fr"
    valid = [DATA / "multi30k/val.en", DATA / "multi30k/val.fr"]
    report = examine("translate", {Split.TRAIN: [english, german], Split.VALID: valid})
    (found,) = report.of_kind("leakage")
    assert found.lines == (687,)
    train = set(zip(lines_of("multi30k/train.en"), lines_of("multi30k/train.fr"), strict=True))
    pairs = zip(lines_of("multi30k/val.en"), lines_of("multi30k/val.fr"), strict=True)
    assert [number for number, pair in enumerate(pairs, 1) if pair in train] == [687]


def test_a_set_of_mixed_encodings():
    form = Table(separator=" ", columns={"label": 0, "text": 1}, cells=Cells.REST, quoting=Quoting.NONE)
    (found,) = examine("classify", {Split.TRAIN: [DATA / "trec/train.txt"]}, file_format=form).of_kind("wrong-encoding")
    assert found.lines == (66,)


@pytest.fixture(scope="module")
def multi30k():
    return lines_of("multi30k/val.en"), lines_of("multi30k/val.de")


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.__name__)
@settings(max_examples=3, **QUICK)
@given(places=st.sets(st.integers(0, 713), min_size=1, max_size=12).map(sorted), side=st.integers(0, 1), seed=SEEDS)
def test_faults_in_a_copy_of_multi30k(tmp_path_factory, multi30k, fault, places, side, seed):
    # The faults need a full stop at the end; captions often have none.
    sides = [[text.rstrip(" .") + "." for text in lines] for lines in multi30k]
    third = corpora.sentences(["ru"], 714, seed)[0]
    pairs_ = faults.CorruptedPairs(("en", "de"), [s[:714] for s in sides], [s[714:] for s in sides], third, side)
    fault(pairs_, places)
    found = faults.findings_by_file(*_examine(tmp_path_factory, pairs_))
    if fault.__name__ == "unexpected_script":
        found.pop(("length-ratio", "train", 0), None)  # sentences that mean something else have other lengths
    for key, lines in pairs_.expected.items():
        assert found.pop(key, None) == lines, (key, found)
    assert {kind for kind, *_ in found} <= pairs_.side_effects, found


def _examine(tmp_path_factory, pairs_):
    files = faults.write(tmp_path_factory.mktemp("real"), pairs_)
    sets = {Split(split): paths for split, paths in files.items()}
    return examine("translate", sets, max_lines=10_000, **pairs_.options), files


@settings(max_examples=10, **QUICK)
@given(place=st.integers(0, 1013), side=st.integers(0, 1), lost=st.integers(1, 4))
def test_lines_lost_in_a_copy_of_multi30k(tmp_path_factory, multi30k, place, side, lost):
    """Captions have similar lengths, so the position is less certain: within 60 of 1,014 lines."""
    sides = [list(lines) for lines in multi30k]
    lost = len(sides[side][place : place + lost])
    del sides[side][place : place + lost]
    folder = tmp_path_factory.mktemp("real")
    files = [corpora.write(folder / f"{number}", lines) for number, lines in enumerate(sides)]
    (found,) = examine("translate", {Split.TRAIN: files}).of_kind("line-counts")
    assert abs(found.lines[0] - (place + 1)) <= 60


ROWS = {
    "ragged-columns": lambda row, number: f"{row}\tmore" if number % 2 else row.split("\t")[1],
    "empty-line": lambda row, number: row.split("\t")[0] + "\t ",
    "empty-label": lambda row, number: "\t" + row.split("\t")[1],
    "similar-labels": lambda row, number: f" {row}" if number % 2 else row.replace("\t", " \t", 1),
    "rare-label": lambda row, number: "2\t" + row.split("\t")[1],
    "control-character": lambda row, number: row[:5] + "\x02" + row[5:],
    "markup": lambda row, number: row + " &quot;",
}


@pytest.mark.parametrize("kind", ROWS)
@settings(max_examples=3, **QUICK)
@given(places=st.sets(st.integers(1, 872), min_size=1, max_size=8).map(sorted))
def test_faults_in_a_copy_of_sst2(tmp_path_factory, kind, places):
    lines = lines_of("sst2/dev.tsv")
    places = places[:4] if kind == "rare-label" else places
    for number, place in enumerate(places):
        lines[place] = ROWS[kind](lines[place], number)
    path = corpora.write(tmp_path_factory.mktemp("real") / "dev.tsv", lines)
    report = examine("classify", {Split.TRAIN: [path]}, file_format=SST, max_lines=10_000)
    assert findings_by_kind(report) == {kind: [place + 1 for place in places]}


@settings(max_examples=5, **QUICK)
@given(data=st.data())
def test_faults_in_a_copy_of_wnut17(tmp_path_factory, data):
    lines = lines_of("wnut17/emerging.dev.conll")
    first = [place for place in range(1, len(lines)) if not lines[place - 1] and lines[place].endswith("\tO")]
    # A line that begins with # and lacks its tag is a comment.
    rows = [place for place in first if lines[place + 1].endswith("\tO") and not lines[place].startswith("#")]
    places = sorted(data.draw(st.sets(st.sampled_from(rows), min_size=3, max_size=12)))
    expected = {"missing-tag": [], "malformed-tag": [], "tag-sequence": []}
    for number, place in enumerate(places):
        kind = list(expected)[number % 3]
        tag = {"missing-tag": "", "malformed-tag": "\tperson", "tag-sequence": "\tI-person"}[kind]
        lines[place] = lines[place].split("\t")[0] + tag
        expected[kind].append(place + 1)
    path = corpora.write(tmp_path_factory.mktemp("real") / "dev.conll", lines)
    found = findings_by_kind(examine("tag", {Split.TRAIN: [path]}, max_lines=10_000))
    assert {kind: found.get(kind) for kind in expected} == expected


@settings(max_examples=5, **QUICK)
@given(data=st.data())
def test_faults_in_a_copy_of_xquad(tmp_path_factory, data):
    dataset = json.loads((DATA / "xquad/xquad.en.json").read_text())
    questions = [
        question for article in dataset["data"] for paragraph in article["paragraphs"] for question in paragraph["qas"]
    ]
    chosen = data.draw(st.lists(st.sampled_from(range(len(questions))), min_size=2, max_size=8, unique=True))
    expected = {"answer-not-in-context": set(), "answer-offset": set()}
    for number, place in enumerate(chosen):
        answer = questions[place]["answers"][0]
        if number % 2:
            answer["text"] = "no such words at all"
        else:
            answer["answer_start"] += 7_000
        expected["answer-not-in-context" if number % 2 else "answer-offset"].add(questions[place]["id"])
    path = tmp_path_factory.mktemp("real") / "a.json"
    path.write_text(json.dumps(dataset, indent=1))
    written = path.read_text().split("\n")
    found = findings_by_kind(examine("answer", {Split.TRAIN: [path]}, max_lines=10_000))
    for kind, ids in expected.items():
        lines = [written[line - 1] for line in found.get(kind, [])]
        assert {re.search(r'"id": "(.*)"', line)[1] for line in lines} == ids


LANGUAGES = [(("en", "de"), "fr"), (("de", "en"), "fr"), (("en", "fr"), "de")]


@pytest.mark.parametrize(
    ("name", "languages", "other", "seed"),
    [(name, *pair, 1) for name in ("val", "test_2016_flickr") for pair in LANGUAGES]
    + [("val", *LANGUAGES[0], 2), ("train", *LANGUAGES[0], 1)],
)
def test_lines_of_another_language_in_a_copy_of_multi30k(tmp_path, name, languages, other, seed):
    """Of 40 lines at least 38 are found, and fewer than 1% of the lines of both files are reported by mistake."""
    sides = [lines_of(f"multi30k/{name}.{language}") for language in languages]
    foreign = lines_of(f"multi30k/{name}.{other}")
    places = random.Random(seed).sample(range(len(foreign)), 40)
    for place in places:
        sides[1][place] = foreign[place]
    files = [corpora.write(tmp_path / str(number), lines) for number, lines in enumerate(sides)]
    report = examine("translate", {Split.TRAIN: files}, max_lines=10**6)
    found = {finding.file: {*finding.lines} for finding in report.of_kind("other-language")}
    injected = {place + 1 for place in places}
    assert len(found[str(files[1])] & injected) >= 38
    assert sum(len(lines - injected) for lines in found.values()) < 0.01 * len(sides[0])


def test_pairs_of_tatoeba_are_in_their_languages():
    report = examine("translate", {Split.TRAIN: [DATA / "tatoeba-en-de/en-de.tsv"]})
    assert sum(finding.count for finding in report.of_kind("other-language")) < 0.01 * 169_813


def test_the_header_of_sst2_is_recognized_with_columns_by_number(tmp_path):
    report = examine(
        "classify", {Split.TRAIN: [DATA / "sst2/train.tsv"]}, file_format=Table(columns={"text": 1, "label": 0})
    )
    assert report.of_kind("header")[0].lines == (1,)
    assert report.labels == {"train": {"1": 37_569, "0": 29_780}}
    wrong = examine("classify", {Split.TRAIN: [DATA / "sst2/train.tsv"]})
    assert findings_by_kind(wrong) == {"missing-column": [1]}
    assert [*wrong.files.values()] == [67_350]
