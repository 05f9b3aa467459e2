"""Predictions as tables and JSON Lines: what is written is read again, whatever the texts are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.cli.runner import run
from unit.tasks import encoders

from regard.tasks.classify import Classification
from regard.tasks.prediction_files import prediction_columns, prediction_line, read_predictions
from regard.tokenization.text_files import DataError

TEXT = st.text(alphabet='ab\t\n\r\\"1{}[ntu é', max_size=8)
VALUES = st.one_of(
    TEXT, st.none(), st.integers(), st.lists(TEXT, max_size=2), st.sampled_from(["null", "1.5", "[]", '"a"'])
)


@given(rows=st.lists(st.dictionaries(st.sampled_from(["text", "score", "labels"]), VALUES), max_size=4))
def test_a_table_is_read_as_it_was_written(tmp_path_factory, rows):
    columns = ["text", "score", "labels"]
    path = tmp_path_factory.mktemp("tables") / "predictions.tsv"
    path.write_text(
        "".join(line + "\n" for line in ["\t".join(columns), *(prediction_line(row, columns) for row in rows)])
    )
    assert list(read_predictions(path)) == rows


def test_columns_are_the_same_for_all_results():
    one = Classification(labels=("good",), scores={"good": 0.75})
    assert prediction_columns(one)[:2] == ["label", "labels"]
    assert prediction_columns(one) == prediction_columns(Classification(labels=(), scores={}, value=1.0))


def test_commands_write_both(tmp_path):
    folder = encoders.encoder(tmp_path / "model", "BertForSequenceClassification", labels=("bad", "good"))
    texts = tmp_path / "texts.txt"
    texts.write_text("the dog\n\na cat\n")
    for option, name in (("--json", "out.jsonl"), ("--tsv", "out.tsv")):
        (tmp_path / name).write_text(run("classify", folder, texts, option).out)
    rows = list(read_predictions(tmp_path / "out.tsv"))
    assert rows == list(read_predictions(tmp_path / "out.jsonl"))
    assert [row["label"] in ("bad", "good") for row in rows] == [True] * 3
    assert run("classify", folder, texts, "--json", "--tsv").code == 2


def test_files_that_are_no_predictions(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tscore\nonly one\n")
    with pytest.raises(DataError, match="line 2: 1 cells, but the header has 2"):
        list(read_predictions(tmp_path / "a.tsv"))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a"}) + "\nnot json\n")
    with pytest.raises(DataError, match="line 2: not JSON"):
        list(read_predictions(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("command", "content", "message"),
    [
        ("classify", b"fine\nbro\x00ken \xff\xfe\n", "line 2"),
        ("answer", b"who?\tthe dog\nno tab\n", "line 2: expected two texts, separated by a tab"),
    ],
)
def test_bad_lines_are_named_and_earlier_results_written(tmp_path, command, content, message):
    name = {"classify": "BertForSequenceClassification", "answer": "BertForQuestionAnswering"}[command]
    folder = encoders.encoder(tmp_path / "model", name, labels=("a", "b") if command == "classify" else ())
    (tmp_path / "in.tsv").write_bytes(content)
    from unit.cli.runner import shell

    called = shell(command, folder, tmp_path / "in.tsv")
    assert called.code == 1
    assert message in called.err
    assert "Traceback" not in called.err
    assert len(called.lines) == 1
