"""Clean data has no findings."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.doctor import corpora

from regard.data.formats import Conll
from regard.doctor.examination import examine, examine_quick
from regard.doctor.split_reader import Split

SEEDS = st.integers(0, 2**32 - 1)


def assert_no_findings(report):
    assert [(finding.kind, finding.message, finding.examples) for finding in report.findings] == []
    assert report.ok


@settings(max_examples=15, **corpora.QUICK)
@given(
    seed=SEEDS,
    pair=st.sampled_from(corpora.pairs_of_languages()),
    count=st.integers(60, 250),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_parallel_text(tmp_path_factory, seed, pair, count, end):
    folder = tmp_path_factory.mktemp("clean")
    sides = corpora.sentences(pair, count + 40, seed)
    files = {}
    for split, part in ((Split.TRAIN, slice(0, count)), (Split.VALID, slice(count, None))):
        names = [folder / f"{split}.{language}" for language in pair]
        files[split] = [corpora.write(path, side[part], end) for path, side in zip(names, sides, strict=True)]
    assert_no_findings(examine("translate", files, max_length=64))
    assert_no_findings(examine_quick("translate", files))


@settings(max_examples=5, **corpora.QUICK)
@given(seed=SEEDS, language=st.sampled_from(corpora.LANGUAGES))
def test_tables_and_json_lines(tmp_path_factory, seed, language):
    folder = tmp_path_factory.mktemp("clean")
    rows = corpora.labeled(120, seed, language)
    tsv = corpora.write(folder / "a.tsv", ["text\tlabel", *(f"{text}\t{label}" for text, label in rows)])
    csv = corpora.write(folder / "a.csv", ["text,label", *(f'"{text}",{label}' for text, label in rows)])
    lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows]
    for path in (tsv, csv, corpora.write(folder / "a.jsonl", lines)):
        assert_no_findings(examine("classify", {Split.TRAIN: [path]}))
    packed = folder / "a.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    assert_no_findings(examine("classify", {Split.TRAIN: [packed]}))


@pytest.mark.parametrize("scheme", ["BIO", "IOB1", "BIOES"])
def test_tags(tmp_path, scheme):
    path = corpora.write(tmp_path / "a.conll", corpora.conll(corpora.tagged(200, 3, scheme)))
    assert_no_findings(examine("tag", {Split.TRAIN: [path]}, file_format=Conll()))


def test_questions_scores_summaries_and_plain_text(tmp_path):
    path = corpora.write(tmp_path / "a.json", corpora.squad(corpora.questions(80, 5)))
    assert_no_findings(examine("answer", {Split.TRAIN: [path]}))
    rows = [f"{a}\t{b}\t{score}" for a, b, score in corpora.scored(100, 6)]
    path = corpora.write(tmp_path / "a.tsv", ["text\tpair\tlabel", *rows])
    assert_no_findings(examine("embed", {Split.TRAIN: [path]}))
    (texts,) = corpora.sentences(["fr"], 300, 7)
    long = [" ".join(texts[start : start + 6]) for start in range(0, 300, 6)]
    short = corpora.sentences(["fr"], 50, 8)[0]
    files = [
        corpora.write(tmp_path / "long.fr", long),
        corpora.write(tmp_path / "short.fr", [text[:30] for text in short]),
    ]
    assert_no_findings(examine("summarize", {Split.TRAIN: files}))
    with_paragraphs = [
        line for number, text in enumerate(texts) for line in ([text, ""] if number % 5 == 4 else [text])
    ]
    path = corpora.write(tmp_path / "a.txt", with_paragraphs)
    assert_no_findings(examine("generate", {Split.TRAIN: [path]}))
    assert_no_findings(examine("fill", {Split.TRAIN: [path]}))
