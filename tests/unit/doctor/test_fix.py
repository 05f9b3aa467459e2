"""`--fix` writes a copy in which the doctor finds nothing that a program can mend, and logs every change."""

import json

import pytest
from typer.testing import CliRunner
from unit.doctor import corpora

from regard.cli.main import app
from regard.data.formats import JsonLines, Table
from regard.doctor.examination import examine
from regard.doctor.fix import ALL_LINES, mend_text, write_fixed
from regard.doctor.split_reader import Split


def run(*words):
    return CliRunner().invoke(app, ["doctor", *map(str, words)])


def log_of(folder):
    rows = [line.split("\t") for line in (folder / "changes.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    return [(file.rpartition("/")[2], int(line), action, kind) for file, line, action, kind, _ in rows]


@pytest.mark.parametrize(("text", "expected"), [
    ("caf\u00c3\u00a9 \u00e2\u20ac\u0153a\u00e2\u20ac\u009d", "café “a”"), ("a\u200bb\x07c\x00d", "abcd"),
    ("a &amp; b<br>c", "a & b c"), ("a\u2028b\rc", "a b c"), ("déjà vu, naïve", "déjà vu, naïve"), ("\u200b\x07", None),
    ("Ð¼Ð¸Ñ\x80 und é", "мир und é"), ("lost \ufffd", "lost \ufffd"),
])  # fmt: skip
def test_characters_are_mended(text, expected):
    assert mend_text(text) == expected


def test_a_copy_of_parallel_files(tmp_path):
    sides = corpora.sentences(["en", "de"], 200, 1)
    train, valid = [side[:150] for side in sides], [side[150:] for side in sides]
    train[0][10] = ""
    train[1][20] = " "
    train[0][30], train[1][30] = train[0][5], train[1][5]
    train[0][40] += "\u200b"
    train[1][50] = "Größe ändert sich nicht, und niemand sieht es.".encode("cp1252")
    train[0][60], train[1][60] = valid[0][3], valid[1][3]
    train[0][70], train[1][70] = train[1][70], train[0][70]
    files = {
        Split.TRAIN: [corpora.write(tmp_path / f"train.{n}", side) for n, side in enumerate(train)],
        Split.VALID: [corpora.write(tmp_path / f"valid.{n}", side, "\r\n") for n, side in enumerate(valid)],
    }
    result = run("--task", "translate", *files[Split.TRAIN], "--valid", *files[Split.VALID], "--fix", tmp_path / "out")
    assert result.exit_code == 0
    assert "Of 400 lines 10 were removed and 2 changed" in result.stderr
    assert "No problems found" in result.stdout
    removed = [(11, "empty-side"), (21, "empty-side"), (31, "duplicate"), (71, "swapped-sides")]
    removed.append((61, "also in the validation or test data"))
    changed = {"train.0": (41, "changed", "zero-width"), "train.1": (51, "changed", "wrong-encoding")}
    assert log_of(tmp_path / "out") == [
        (name, *row)
        for name in ("train.0", "train.1")
        for row in sorted([changed[name], *((line, "removed", kind) for line, kind in removed)])
    ]
    gone = {10, 20, 30, 60, 70}
    copies = [(tmp_path / "out" / f"train.{n}").read_text(encoding="utf-8").split("\n")[:-1] for n in (0, 1)]
    assert copies[0][0] == train[0][0]
    assert [len(copy) for copy in copies] == [150 - len(gone)] * 2
    assert copies[1][50 - 3] == "Größe ändert sich nicht, und niemand sieht es."
    expected = [text for index, text in enumerate(train[0]) if index not in gone]
    assert copies[0] == [text.replace("\u200b", "") for text in expected]
    assert (tmp_path / "out" / "valid.0").read_text(encoding="utf-8").split("\n")[:-1] == valid[0]
    again = run("--task", "translate", *files[Split.TRAIN], "--fix", tmp_path / "out")
    assert again.exit_code == 1
    assert "is not empty" in str(again.exception)


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_copies_of_rows(tmp_path, kind):
    rows = corpora.labeled(60, 1)
    if kind == "tsv":
        lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in rows)]
        lines[20], lines[30] = "a row\tof three\tcells", "a text without a label\t"
    elif kind == "csv":
        lines = ["text,label", *(f'"{text}",{label}' for text, label in rows)]
        lines[20], lines[30] = '"a quote that stays open,joy', '"a text, in quotes",'
        lines[40] = '"a cell ""over""\ntwo lines",joy'
    else:
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        lines[20], lines[30] = '{"text": ', '{"text": "a text without a label"}'
        lines[40] = json.dumps({"text": "a \u200bfilm that nobody saw", "label": "joy"})
    path = corpora.write(tmp_path / f"a.{kind}", lines)
    report = examine("classify", {Split.TRAIN: [path]}, max_lines=ALL_LINES)
    assert not report.ok
    formats = {Split.TRAIN: JsonLines() if kind == "jsonl" else Table()}
    summary = write_fixed(report, {Split.TRAIN: [path]}, formats, tmp_path / "out")
    assert summary.removed == 2
    copied = examine("classify", summary.files)
    assert copied.ok
    assert sum(copied.labels["train"].values()) == len(rows) - 2


def test_what_cannot_be_copied(tmp_path):
    path = corpora.write(tmp_path / "a.conll", corpora.conll(corpora.tagged(20, 1)))
    result = run("--task", "tag", path, "--fix", tmp_path / "out")
    assert result.exit_code == 1
    assert "corrected by hand" in str(result.exception)
    assert not (tmp_path / "out").exists()
