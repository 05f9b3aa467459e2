"""Faults in tables, JSON Lines, labels and scores are found, with their lines, and nothing else is."""

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.doctor import corpora

from regard.doctor.examination import examine
from regard.doctor.split_reader import Split

COUNT = 100
PLACES = st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=6).map(sorted)
SEEDS = st.integers(0, 2**32 - 1)


def found(report, path=None):
    return {finding.kind: list(finding.lines) for finding in report.findings if path in (None, finding.file)}


def classified(folder, rows, name="a.tsv", valid=None):
    files = {Split.TRAIN: [corpora.write(folder / name, rows)]}
    if valid is not None:
        files[Split.VALID] = [corpora.write(folder / f"valid-{name}", valid)]
    return examine("classify", files, max_lines=10_000)


def tsv(rows):
    return ["text\tlabel", *("\t".join(row) for row in rows)]


def jsonl(rows):
    return [json.dumps({"text": text, "label": label}) for text, label in rows]


def quoted(rows):
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["text", "label"], *rows])
    return text.getvalue().splitlines()


FAULTS = {
    "ragged-columns": lambda row, number: [*row, "more"] if number % 2 else row[:1],
    "empty-line": lambda row, number: [" ", row[1]],
    "empty-label": lambda row, number: [row[0], " " if number % 2 else ""],
    "similar-labels": lambda row, number: [row[0], [row[1].upper(), f"{row[1]} ", f" {row[1].title()}"][number % 3]],
    "rare-label": lambda row, number: [row[0], "joyless"],
}


@pytest.mark.parametrize("kind", FAULTS)
@settings(max_examples=5, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES)
def test_rows_of_a_table(tmp_path_factory, kind, seed, places):
    rows = [list(row) for row in corpora.labeled(COUNT, seed)]
    places = places[:1] if kind == "rare-label" else places
    for number, place in enumerate(places):
        rows[place] = FAULTS[kind](rows[place], number)
    assert found(classified(tmp_path_factory.mktemp("t"), tsv(rows))) in (
        {kind: [place + 2 for place in places]},
        {kind: [place + 2 for place in places], "rare-label": [place + 2 for place in places]},
    )


@settings(max_examples=5, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES)
def test_contradictions_and_duplicates(tmp_path_factory, seed, places):
    rows = [list(row) for row in corpora.labeled(COUNT, seed)]
    copies = [place for place in places if place >= 4]
    for number, place in enumerate(copies):
        rows[place][0] = rows[0][0]
        rows[place][1] = rows[0][1] if number % 2 else next(one for one in corpora.LABELS if one != rows[0][1])
    report = found(classified(tmp_path_factory.mktemp("t"), tsv(rows)))
    # The first copy contradicts; later ones repeat the first line or the first copy.
    told = sorted(report.pop("contradiction", []) + report.pop("duplicate", []))
    assert told == [place + 2 for place in copies]
    assert report == {}


BROKEN = {
    "broken-json": lambda text, label: f'{{"text": "{text}", "label": {label}',
    "missing-key": lambda text, label: json.dumps({"texts": text, "label": label}),
    "wrong-type": lambda text, label: json.dumps({"text": [1, 2], "label": label}),
    "empty-line": lambda text, label: "",
    "empty-label": lambda text, label: json.dumps({"text": text, "label": None}),
}


@pytest.mark.parametrize("kind", BROKEN)
@settings(max_examples=4, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES)
def test_lines_of_json(tmp_path_factory, kind, seed, places):
    rows = corpora.labeled(COUNT, seed)
    lines = jsonl(rows)
    for place in places:
        lines[place] = BROKEN[kind](*rows[place])
    report = found(classified(tmp_path_factory.mktemp("t"), lines, "a.jsonl"))
    assert report == {kind: [place + 1 for place in places]}


@settings(max_examples=8, **corpora.QUICK)
@given(seed=SEEDS, places=st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=3).map(sorted))
def test_quotes_that_are_never_closed(tmp_path_factory, seed, places):
    rows = corpora.labeled(COUNT, seed)
    lines = quoted(rows)
    for place in places:
        text, label = rows[place]
        lines[place + 1] = f'"{text},{label}'
    report = found(classified(tmp_path_factory.mktemp("t"), lines, "a.csv"))
    assert report == {"unbalanced-quote": [place + 2 for place in places]}


def test_two_stray_quotes_that_would_swallow_what_is_between(tmp_path):
    rows = [(text.replace(",", ";"), label) for text, label in corpora.labeled(40, 1)]
    lines = ["text,label", *(f"{text},{label}" for text, label in rows)]
    lines[10] = '"' + lines[10]
    lines[20] = lines[20].replace(".,", '.",')
    # The second quote is inside a cell that does not start with a quote, so it is text.
    assert found(classified(tmp_path, lines, "a.csv")) == {"unbalanced-quote": [11]}


def test_cells_over_several_lines_are_no_fault(tmp_path):
    rows = [(f'{text}\nand "then", more\n{text}', label) for text, label in corpora.labeled(40, 1)]
    assert found(classified(tmp_path, quoted(rows), "a.csv")) == {}
    rows[7] = ("", "joy")
    assert found(classified(tmp_path, quoted(rows), "a.csv")) == {"empty-line": [1 + 7 * 3 + 1]}


def test_a_column_that_is_not_there(tmp_path):
    rows = [[text, label, "x"] for text, label in corpora.labeled(40, 1)]
    report = classified(tmp_path, ["sentence\tlabel\tmore", *("\t".join(row) for row in rows)])
    assert found(report) == {"missing-column": [1]}
    assert "found sentence, label, more" in report.findings[0].message
    assert not report.ok


def test_one_label_only(tmp_path):
    report = classified(tmp_path, tsv([(text, "joy") for text, _ in corpora.labeled(40, 1)]))
    assert set(found(report)) == {"one-label"}
    assert not report.ok


def test_a_label_column_that_is_text(tmp_path):
    other = corpora.sentences(["en"], 60, 2)[0]
    report = classified(tmp_path, tsv([(text, other[n]) for n, (text, _) in enumerate(corpora.labeled(60, 1))]))
    assert set(found(report)) == {"too-many-labels"}
    assert not report.ok


@settings(max_examples=5, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES)
def test_labels_that_training_does_not_have(tmp_path_factory, seed, places):
    rows = [list(row) for row in corpora.labeled(2 * COUNT, seed)]
    for place in places:
        rows[COUNT + place][1] = "envy"
    folder = tmp_path_factory.mktemp("t")
    report = classified(folder, tsv(rows[:COUNT]), valid=tsv(rows[COUNT:]))
    assert found(report) == {"unseen-label": [place + 2 for place in places]}
    assert report.findings[0].file == str(folder / "valid-a.tsv")
    assert "'envy'" in report.findings[0].message


@settings(max_examples=4, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES)
def test_leakage_whatever_the_label(tmp_path_factory, seed, places):
    rows = [list(row) for row in corpora.labeled(2 * COUNT, seed)]
    for place in places:
        rows[COUNT + place][0] = rows[place][0]
    report = classified(tmp_path_factory.mktemp("t"), tsv(rows[:COUNT]), valid=tsv(rows[COUNT:]))
    assert found(report) == {"leakage": [place + 2 for place in places]}


def test_a_number_that_is_missing_among_labels(tmp_path):
    rows = [(text, "0124"[number % 4]) for number, (text, _) in enumerate(corpora.labeled(80, 1))]
    report = classified(tmp_path, tsv(rows))
    assert set(found(report)) == {"label-gap"}
    assert "from 0 to 4, without 3" in report.findings[0].message
    assert report.ok


@settings(max_examples=6, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES, wrong=st.sampled_from(["?", "", "nan", "inf", "45", "-17", "4,5"]))
def test_scores(tmp_path_factory, seed, places, wrong):
    rows = [list(row) for row in corpora.scored(COUNT, seed)]
    for place in places:
        rows[place][2] = wrong
    path = tmp_path_factory.mktemp("t") / "a.tsv"
    corpora.write(path, ["text\tpair\tlabel", *("\t".join(row) for row in rows)])
    kind = "out-of-range" if wrong in ("45", "-17") else "no-number"
    report = examine("embed", {Split.TRAIN: [path]}, max_lines=99)
    if places == sorted(places) and kind == "out-of-range" and len(places) > 5:
        return  # with more than 5% of the scores they are not outliers
    assert found(report) == {kind: [place + 2 for place in places]}


def test_a_hash_that_says_nothing_makes_no_duplicates(tmp_path, monkeypatch):
    """Hash collisions give candidates, not findings."""
    monkeypatch.setattr("regard.doctor.duplicates.hash", lambda _: 7, raising=False)
    rows = [list(row) for row in corpora.labeled(COUNT, 4)]
    rows[60] = list(rows[20])
    report = classified(tmp_path, tsv(rows), valid=tsv(corpora.labeled(COUNT, 5)))
    assert found(report) == {"duplicate": [62]}


@pytest.mark.parametrize(("piece", "kind"), [
    ("\u200b", "zero-width"), ("\x07", "control-character"), ("Ã©", "mojibake"), ("&amp;", "markup"), ("\0", "nul"),
])  # fmt: skip
def test_characters_behind_the_escapes_of_json(tmp_path, piece, kind):
    rows = [list(row) for row in corpora.labeled(40, 1)]
    rows[9][0] = rows[9][0][:5] + piece + rows[9][0][5:]
    assert found(classified(tmp_path, jsonl(rows), "a.jsonl")) == {kind: [10]}


def test_documents_may_be_long(tmp_path):
    (texts,) = corpora.sentences(["en"], 2000, 1)
    rows = [
        (" ".join(texts[start : start + 500]), label)
        for start, label in ((0, "a"), (500, "b"), (1000, "a"), (1500, "b"))
    ]
    assert max(len(text) for text, _ in rows) > 10_000
    assert found(classified(tmp_path, jsonl(rows), "a.jsonl")) == {}
    assert found(classified(tmp_path, tsv(rows))) == {}
