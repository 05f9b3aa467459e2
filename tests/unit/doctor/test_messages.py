"""Exact messages of some findings: the file, the line and the split."""

import re

import pytest
from unit.doctor import corpora, faults

from regard.data import line_blocks
from regard.doctor.examination import examine, examine_quick
from regard.doctor.line_alignment import find_divergence
from regard.doctor.split_reader import Split


def pairs(folder, name, sides):
    return [corpora.write(folder / f"{name}.{side}", texts) for side, texts in zip(("en", "de"), sides, strict=True)]


@pytest.mark.parametrize("split", [Split.VALID, Split.TEST])
@pytest.mark.parametrize("same", [True, False], ids=["leakage", "source-leakage"])
def test_leakage_names_both_places(tmp_path, split, same):
    """Splits of two files: the first line of the second file is also the first line of the second training file."""
    sides = corpora.sentences(["en", "de"], 120, 4)
    cut = [[side[start : start + 30] for side in sides] for start in (0, 30, 60, 90)]
    cut[3][0][0] = cut[1][0][0]
    cut[3][1][0] = cut[1][1][0] if same else cut[1][1][0].replace(".", " noch.")
    names = ("one", "two", "three", "four")
    one, two, three, four = (pairs(tmp_path, name, part) for name, part in zip(names, cut, strict=True))
    (found,) = examine("translate", {Split.TRAIN: [*one, *two], split: [*three, *four]}).findings
    assert found.kind == ("leakage" if same else "source-leakage")
    assert (found.file, found.lines, found.count) == (str(four[0]), (1,), 1)
    assert found.examples[0].startswith("line 1: same as line 1 of two.en: ")


@pytest.mark.parametrize("lost", [0, 1, 28, 58, 59])
@pytest.mark.parametrize("longer", [0, 1])
def test_two_sides_part_exactly_where_a_line_is_missing(lost, longer):
    """Equal lengths of the two sides and very different lengths of neighbors make the position certain."""
    whole = [10, 100, 1000] * 20
    sides = [whole[:lost] + whole[lost + 1 :]]
    sides.insert(longer, whole)
    assert find_divergence(*sides) == lost + 1
    assert find_divergence(whole, whole) is None


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("longer", [0, 1])
def test_line_counts_are_those_of_the_whole_files(tmp_path, monkeypatch, count, longer):
    """The rest of the longer file is read too, block by block."""
    monkeypatch.setattr(line_blocks, "BLOCK_LINES", 4)
    sides = corpora.sentences(["en", "de"], 4 * count, 4)
    sides[1 - longer] = sides[1 - longer][:count]
    sides[longer][3 * count] = "caf\xe9".encode("latin-1")
    files = pairs(tmp_path, "a", sides)
    report = examine("translate", {Split.TRAIN: files})
    (counts,) = report.of_kind("line-counts")
    assert counts.message.startswith(f"a.en has {len(sides[0])} lines, a.de has {len(sides[1])}; ")
    if count < 5:
        assert counts.lines == (count + 1,)  # too few lines to compare lengths: the end of the shorter side
    (wrong,) = report.of_kind("wrong-encoding")
    assert (wrong.file, wrong.lines) == (str(files[longer]), (3 * count + 1,))


def test_lines_of_wrong_encoding_are_counted_through_the_whole_file(tmp_path):
    """Files are read in blocks: test the last line of a block, the first of the next, and a later one."""
    block = line_blocks.BLOCK_LINES
    texts = [f"line {number}".encode() for number in range(2 * block + 100)]
    places = (1, block, block + 1, 2 * block + 7)
    for place in places:
        texts[place - 1] = "déjà vu".encode("cp1252")
    (found,) = examine_quick("generate", {Split.TRAIN: [corpora.write(tmp_path / "a.txt", texts)]}).of_kind(
        "wrong-encoding"
    )
    assert (found.lines, found.count) == (places, 4)


CONTEXT = "The teacher lives in Rome. The pupil lives in Bern."


@pytest.mark.parametrize(
    ("answers", "impossible", "kinds"),
    [
        ([("Rome", 21)], False, set()),
        ([("rome", 21)], False, {"answer-not-in-context"}),
        ([("Rome ", 21)], False, {"answer-not-in-context"}),
        ([("Rome", 21), ("Paris", 21)], False, {"answer-not-in-context"}),
        ([("Rome", 21), ("Bern", 45)], False, {"answer-offset"}),
        ([("Paris", 21)], True, {"answered-impossible"}),
        ([], True, set()),
    ],
    ids=["right", "other case", "a space more", "the second", "the second elsewhere", "no answer expected", "none"],
)
def test_every_answer_of_a_question_is_looked_up_as_it_is_written(tmp_path, answers, impossible, kinds):
    record = {"id": "1", "question": "Who lives where?", "context": CONTEXT, "is_impossible": impossible}
    record["answers"] = [{"text": text, "answer_start": start} for text, start in answers]
    path = corpora.write(tmp_path / "a.json", corpora.squad([record]))
    assert {found.kind for found in examine("answer", {Split.TRAIN: [path]}).findings} == kinds


def tokenize(text):
    return faults.PUNCTUATION.sub(r" \1", text)


@pytest.mark.parametrize("split", [Split.VALID, Split.TEST])
@pytest.mark.parametrize(
    ("change", "yes", "no"),
    [(str.lower, "lowercase", "not lowercase"), (tokenize, "tokenized", "not tokenized")],
    ids=["lowercase", "tokenized"],
)
@pytest.mark.parametrize("changed", ["train", "other"])
def test_what_is_unlike_training_says_which_is_which(tmp_path, split, change, yes, no, changed):
    (texts,) = corpora.sentences(["en"], 90, 4)
    train, other = texts[:60], texts[60:]
    if changed == "train":
        train, yes, no = [change(text) for text in train], no, yes
    else:
        other = [change(text) for text in other]
    files = [corpora.write(tmp_path / name, part) for name, part in (("train", train), ("other", other))]
    (found,) = examine("generate", {Split.TRAIN: files[:1], split: files[1:]}).findings
    assert (found.kind, found.file) == ("unlike-training", str(files[1]))
    assert found.message == f"100% of this text is {yes}, the training data is {no}"


def test_lengths_outside_of_a_misaligned_range_are_still_reported(tmp_path):
    sides = corpora.sentences(["de", "fr"], 600, 4)
    lost = sides[1].pop(300)
    sides[1].insert(500, f"{lost[:-1]} {lost}")
    sides[0][20] = " ".join([sides[0][20]] * 8)
    sides[0][400] = " ".join([sides[0][400]] * 20)
    report = examine("translate", {Split.TRAIN: pairs(tmp_path, "a", sides)})
    (misaligned,) = report.of_kind("misaligned")
    (ratio,) = report.of_kind("length-ratio")
    assert ratio.lines == (21,)
    assert re.search(r"; \d+ pairs? of implausible length ratio there (is|are) not listed$", misaligned.message)


@pytest.mark.parametrize("task", ["fill", "classify", "translate"])
def test_a_file_of_empty_lines_has_no_examples(tmp_path, task):
    content = {"fill": "\n \n\n", "classify": "text\tlabel\n\n\n", "translate": "\n\n\n"}[task]
    names = {"fill": ["a.txt"], "classify": ["a.tsv"], "translate": ["a.en", "a.de"]}[task]
    for name in names:
        (tmp_path / name).write_text(content)
    files = [tmp_path / name for name in names]
    for examined in (examine, examine_quick):
        report = examined(task, {Split.TRAIN: files})
        assert not report.ok
        assert {finding.file for finding in report.of_kind("no-example")} == set(map(str, files))


def test_all_lines_of_a_file_are_counted_though_its_columns_are_missing(tmp_path):
    path = corpora.write(tmp_path / "a.tsv", ["a\tb", *["c\td"] * 40_000])
    report = examine("classify", {Split.TRAIN: [path]})
    assert {finding.kind for finding in report.findings} == {"missing-column"}
    assert report.files == {str(path): 40_001}
    words = report.findings[0].message + report.findings[0].remedy
    assert not re.search(r"Table|Labell?ed|Header|Cells", words)
