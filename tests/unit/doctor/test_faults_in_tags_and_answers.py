"""Faults in tags and in questions with their answers are found, with their lines, and nothing else is."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.doctor import corpora

from regard.data.formats import Scheme
from regard.data.tag_schemes import to_bio
from regard.doctor.examination import examine
from regard.doctor.split_reader import Split
from regard.doctor.tag_checks import SENTENCE_EDGE, transition_fault
from regard.tokenization.text_files import DataError

COUNT = 60
SEEDS = st.integers(0, 2**32 - 1)
PLACES = st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=6).map(sorted)


def examined(task, path):
    report = examine(task, {Split.TRAIN: [path]}, max_lines=10_000)
    return {finding.kind: list(finding.lines) for finding in report.findings}


def first_lines(sentences):
    """The first line of each sentence."""
    lines, line = [], 1
    for sentence in sentences:
        lines.append(line)
        line += len(sentence) + 1
    return lines


def missing_tag(sentence):
    sentence[0] = (sentence[0][0], None)
    sentence[1:4] = [(word, "O") for word, _ in sentence[1:4]]
    return [0]


def malformed_tag(sentence):
    sentence[2] = (sentence[2][0], "person")
    sentence[3:4] = [(word, "O") for word, _ in sentence[3:4]]
    return [2]


def tag_sequence(sentence):
    sentence[0] = (sentence[0][0], "O")
    sentence[1] = (sentence[1][0], "I-place")
    sentence[2:4] = [(word, "O") for word, _ in sentence[2:4]]
    return [1]


def type_within_entity(sentence):
    sentence[0] = (sentence[0][0], "B-place")
    sentence[1] = (sentence[1][0], "I-group")
    sentence[2:4] = [(word, "O") for word, _ in sentence[2:4]]
    return [1]


def ragged_columns(sentence):
    sentence[1] = (sentence[1][0], "O\tO")
    sentence[0] = (sentence[0][0], "O")
    sentence[2:4] = [(word, "O") for word, _ in sentence[2:4]]
    return [1]


def one_word_sentence(sentence):
    sentence[:] = [(f"{sentence[2][0]}{sentence[-1][0]}", "O")]
    return [0]


@pytest.mark.parametrize(
    "inject", [missing_tag, malformed_tag, tag_sequence, type_within_entity, ragged_columns, one_word_sentence]
)
@settings(max_examples=5, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES)
def test_tags(tmp_path_factory, inject, seed, places):
    sentences = corpora.tagged(COUNT, seed)
    within = [(place, inject(sentences[place])) for place in places]
    for sentence in sentences:
        for number in range(1, len(sentence)):  # what a change left open is closed
            before, tag = sentence[number - 1][1] or "", sentence[number][1] or ""
            if tag.startswith("I-") and number > 3 and before[2:] != tag[2:]:
                sentence[number] = (sentence[number][0], "O")
    lines = [[word if tag is None else f"{word}\t{tag}" for word, tag in sentence] + [""] for sentence in sentences]
    path = corpora.write(tmp_path_factory.mktemp("t") / "a.conll", [line for sentence in lines for line in sentence])
    found = examined("tag", path)
    found.pop("duplicate", None), found.pop("contradiction", None)  # one-word sentences may happen to be alike
    starts = first_lines(sentences)
    expected = [starts[place] + at for place, ats in within for at in ats]
    assert found.pop(inject.__name__.replace("_", "-")) == expected
    assert set(found) <= {"rare-label"}


def test_sentences_without_ends(tmp_path):
    sentences = corpora.tagged(COUNT, 3)
    lines = [line for line in corpora.conll(sentences) if line]
    assert "endless-sentence" in examined("tag", corpora.write(tmp_path / "a.conll", lines))


def test_a_file_with_a_single_column(tmp_path):
    lines = [line.split("\t")[0] for line in corpora.conll(corpora.tagged(COUNT, 3))]
    report = examine("tag", {Split.TRAIN: [corpora.write(tmp_path / "a.conll", lines)]})
    assert [finding.kind for finding in report.findings] == ["missing-column"]
    assert not report.ok


TAGS = ["O", *(f"{letter}-{kind}" for letter in "BIESLU" for kind in ("person", "place"))]


@given(tags=st.lists(st.sampled_from(TAGS), min_size=1, max_size=6), scheme=st.sampled_from([
    Scheme.BIO, Scheme.IOB1, Scheme.BIOES, Scheme.BILOU,
]))  # fmt: skip
def test_tags_are_at_fault_where_the_reader_refuses_them(tags, scheme):
    steps = zip([SENTENCE_EDGE, *tags], [*tags, SENTENCE_EDGE], strict=True)
    faulty = any(transition_fault(before, tag, scheme) for before, tag in steps)
    needless = scheme is Scheme.IOB1  # the reader takes a needless B- of IOB1 for what it means
    try:
        to_bio(tags, scheme, Path("a"), range(len(tags)))
    except DataError:
        assert faulty
    else:
        assert not faulty or needless


def not_in_context(record):
    record["answers"][0]["text"] = "zeppelin"


def offset(record):
    record["answers"][0]["answer_start"] += 3


def empty_answer(record):
    record["answers"][0]["text"] = " "


def empty_question(record):
    record["question"] = ""


def answered_impossible(record):
    record["is_impossible"] = True


def no_answer(record):
    record["answers"], record["is_impossible"] = [], False


ANSWERS = {
    "answer-not-in-context": not_in_context,
    "answer-offset": offset,
    "empty-answer": empty_answer,
    "empty-question": empty_question,
    "answered-impossible": answered_impossible,
    "no-answer": no_answer,
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("ending", ["json", "jsonl"])
@settings(max_examples=4, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES)
def test_answers(tmp_path_factory, kind, ending, seed, places):
    records = corpora.questions(COUNT, seed)
    for place in places:
        ANSWERS[kind](records[place])
    path = tmp_path_factory.mktemp("t") / f"a.{ending}"
    if ending == "json":
        corpora.write(path, corpora.squad(records))
    elif "impossible" in kind or kind == "no-answer":
        return  # JSON Lines have no such key
    else:
        corpora.write(path, [json.dumps(record) for record in records])
    first = 2 if ending == "json" else 1
    assert examined("answer", path) == {kind: [place + first for place in places]}


@settings(max_examples=4, **corpora.QUICK)
@given(seed=SEEDS, places=PLACES)
def test_ids_that_are_used_twice(tmp_path_factory, seed, places):
    records = corpora.questions(COUNT + 1, seed)
    for place in places:
        records[place + 1]["id"] = records[0]["id"]
    path = corpora.write(tmp_path_factory.mktemp("t") / "a.json", corpora.squad(records))
    assert examined("answer", path) == {"duplicate-id": [place + 3 for place in places]}


@pytest.mark.parametrize(("count", "said"), [
    (lambda before: len(before.encode()), "counts bytes"),
    (lambda before: len(before.encode("utf-16-le")) // 2, "counts UTF-16 units"),
    (lambda before: len(before) + 2, r"off by +2"),
])  # fmt: skip
def test_why_an_offset_is_wrong(tmp_path, count, said):
    context = "Größe 😀 zählt nicht, sagt der Lehrer."
    record = {"id": "1", "question": "Wer sagt es?", "context": context}
    record["answers"] = [{"text": "Lehrer", "answer_start": count(context[: context.index("Lehrer")])}]
    path = corpora.write(tmp_path / "a.json", corpora.squad([record]))
    (found,) = examine("answer", {Split.TRAIN: [path]}).findings
    assert found.kind == "answer-offset"
    assert said in found.examples[0]


def test_a_dataset_that_is_broken(tmp_path):
    lines = corpora.squad(corpora.questions(20, 1))
    path = corpora.write(tmp_path / "a.json", [*lines[:10], lines[10][:-5], *lines[11:]])
    assert examined("answer", path) == {"broken-json": [11]} or examined("answer", path) == {"broken-json": [12]}
    path = corpora.write(tmp_path / "b.json", ['{"data": [{"paragraph": []}]}'])
    assert examined("answer", path) == {"broken-dataset": [1]}
