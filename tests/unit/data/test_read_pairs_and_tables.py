"""Parallel files, tables, JSON Lines and records: valid ones, and the error messages of invalid ones."""

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.data.file_fixtures import COMPRESSORS, property_settings, write

from regard.data.example import Document, LabeledText, Pair, Question, TaggedSentence
from regard.data.fields import LabelType
from regard.data.formats import Cells, Header, JsonLines, Parallel, Quoting, Table, Text
from regard.data.reader import read
from regard.tokenization.text_files import DataError

CELL = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def pairs(examples):
    return [(pair.source, pair.target, pair.file.name, pair.line) for pair in examples]


def fails(match, task_or_type, files, file_format=None):
    with pytest.raises(DataError, match=match):
        list(read(task_or_type, files, file_format))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_parallel_files(tmp_path, suffix):
    one = write(tmp_path, "a.en", "one\n\nthree\n", suffix)
    two = write(tmp_path, "a.de", "eins\nzwei\ndrei", suffix)
    name = f"a.en{suffix}"
    expected = [("one", "eins", name, 1), ("", "zwei", name, 2), ("three", "drei", name, 3)]
    assert pairs(read(Pair, [one, two])) == pairs(read("translate", [str(one), str(two)])) == expected
    assert len(pairs(read(Pair, [one, two, one, two]))) == 6


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff"), max_size=20)


@given(lines=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=9))
@property_settings
def test_any_text_comes_back_as_it_was_written(tmp_path_factory, lines):
    """All of Unicode: only a line feed ends a line, unlike in `str.splitlines`."""
    folder = tmp_path_factory.mktemp("unicode")
    one = write(folder, "a.en", "".join(f"{line}\n" for line, _ in lines))
    two = write(folder, "a.de", "".join(f"{line}\r\n" for _, line in lines))
    rows = [{"source": left, "target": right} for left, right in lines]
    json_lines = write(folder, "a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    for files in ([one, two], [json_lines], rows):
        assert [(pair.source, pair.target) for pair in read(Pair, files)] == lines


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 2), (2, 0)])
def test_parallel_files_of_unequal_length_say_both_counts(tmp_path, left, right):
    one, two = write(tmp_path, "a.en", "x\n" * left), write(tmp_path, "a.de", "y\n" * right)
    shorter, first = ("a.en" if left < right else "a.de"), min(left, right) + 1
    fails(rf"{shorter}, line {first}: .*a\.en has {left} lines and .*a\.de has {right}", Pair, [one, two])


def test_parallel_files_come_in_twos(tmp_path):
    fails("parallel text needs pairs of files .*found 3", Pair, [write(tmp_path, "a.x", "")] * 3, Parallel())
    fails(
        "cannot detect the format from the file extension: name a table .tsv or .csv",
        Pair,
        [write(tmp_path, "a.en", "")],
    )


def test_reading_is_lazy(tmp_path):
    one = write(tmp_path, "a.en", b"good\nbad \xff\n")
    found = read(Pair, [one, one])
    assert next(found).source == "good"
    with pytest.raises(DataError, match="line 2"):
        next(found)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_table_with_a_header_of_our_names(tmp_path, suffix):
    path = write(tmp_path, "a.tsv", "target\tsource\teins\n1\tone\tx\n", suffix)
    assert pairs(read(Pair, [path])) == [("one", "1", path.name, 2)]


def test_a_table_without_a_header(tmp_path):
    path = write(tmp_path, "a.tsv", 'He said "hi\tEr sagte "hi\n"\t"\n')
    assert pairs(read(Pair, [path])) == [('He said "hi', 'Er sagte "hi', "a.tsv", 1), ('"', '"', "a.tsv", 2)]


def test_columns_by_name_and_by_number(tmp_path):
    path = write(tmp_path, "a.csv", 'id,sentence,label\n7,a film,good\n8,"bad, bad\nfilm",bad\n9,end,bad\n')
    by_name = read(LabeledText, [path], Table(columns={"text": "sentence", "label": "label"}))
    by_number = read(LabeledText, [path], Table(columns={"text": 1, "label": -1}, header=Header.FIRST_LINE))
    expected = [("a film", "good", 2), ("bad, bad\nfilm", "bad", 3), ("end", "bad", 5)]
    for found in (by_name, by_number):
        assert [(one.text, one.label, one.line) for one in found] == expected
    by_number = list(read(LabeledText, [path], Table(columns={"text": 1, "label": -1})))
    assert [(one.text, one.label, one.line) for one in by_number] == expected  # the header is recognized
    no_header = list(read(LabeledText, [path], Table(columns={"text": 1, "label": -1}, header=Header.NONE)))
    assert (no_header[0].text, no_header[0].line) == ("sentence", 1)


@given(rows=st.lists(st.tuples(CELL, CELL, CELL.filter(str.strip)), min_size=1, max_size=6))
@property_settings
def test_csv_as_the_csv_module_writes_it(tmp_path_factory, rows):
    """The oracle is Python's own writer: quotes, separators and line breaks inside cells."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("text", "pair", "label"), *rows])
    path = write(tmp_path_factory.mktemp("csv"), "a.csv", buffer.getvalue())
    assert [(one.text, one.pair, one.label) for one in read(LabeledText, [path])] == rows


def test_numbers_as_labels(tmp_path):
    path = write(tmp_path, "sts.csv", "x\t4.5\ta\tb\n" + "x\t1e0\tc\td\tmore\n")
    form = Table(separator="\t", columns={"label": 1, "text": 2, "pair": 3}, cells=Cells.AT_LEAST)
    assert [(one.label, one.pair) for one in read("embed", [path], form)] == [(4.5, "b"), (1.0, "d")]
    assert [one.label for one in read(LabeledText, [path], form)] == ["4.5", "1e0"]
    path = write(tmp_path, "bad.csv", "x\t4.5\ta\tb\nx\tnan\tc\td\n")
    fails("line 2: 'label' should be a number, found 'nan'", "embed", [path], form)


def test_names_for_numbers(tmp_path):
    path = write(tmp_path, "a.tsv", "text\tlabel\nx\t1\ny\t0\nz\t2\n")
    found = read(LabeledText, [path], Table(names={"label": ["bad", "good"]}))
    assert [next(found).label, next(found).label] == ["good", "bad"]
    with pytest.raises(DataError, match="line 4: 'label' is 2, but class names are given only for 0 to 1"):
        next(found)


@pytest.mark.parametrize(
    ("name", "text", "form", "match"),
    [
        (
            "a.tsv",
            "a\tb\nc\td\te\n",
            None,
            r"line 2: the row has 3 cells, expected 2.*Does a cell contain the separator",
        ),
        ("a.tsv", "a\tb\nc\n", None, r"line 2: the row has 1 cells, expected 2.*broken in two"),
        (
            "a.tsv",
            "a\tb\tc\n",
            None,
            r"line 1: no column 'source'; found a, b, c\. Give the column of 'source'.*0 to 2",
        ),
        ("a.csv", "a\tb\n", None, r"look tab-separated: set the separator to"),
        ("a.tsv", "a,b\n", None, r"look comma-separated"),
        (
            "a.csv",
            'a,b\nc,"d\ne,f\n',
            None,
            r"line 2: the row that starts here is not valid CSV.*unclosed.*set quoting to \"none\"",
        ),
        ("a.csv", 'a,b\n"c"d,e\n', None, r"line 2: .*not valid CSV"),
        ("a.tsv", "a\tb\n", Table(columns={"source": 0, "target": 5}), r"no column 5 \(for 'target'\)"),
        (
            "a.tsv",
            "a\tb\n",
            Table(columns={"source": "x", "target": "b"}),
            r"no column 'x' \(for 'source'\); found a, b",
        ),
        (
            "a.tsv",
            "a\tb\n",
            Table(columns={"text": 0}),
            r"there is no field 'text' to give a column; the fields are source, target",
        ),
        ("a.tsv", "a\tb\nc\n", Table(columns={"source": 0, "target": 1}, cells=Cells.AT_LEAST), "expected at least 2"),
        ("a.csv", b"a,b\nc,\xff\n", None, r"line 2: byte 3 .*not valid UTF-8"),
    ],
)
def test_broken_tables(tmp_path, name, text, form, match):
    fails(match, Pair, [write(tmp_path, name, text)], form)


def test_a_quotation_mark_left_open_does_not_swallow_the_file(tmp_path):
    path = write(tmp_path, "a.csv", 'a,b\n"c,d\n' + ("x" * 999 + ",y\n") * 20_000)
    fails("line 2: .*not valid CSV .unexpected end of data", Pair, [path])


def test_the_last_column_can_be_the_rest_of_the_line(tmp_path):
    path = write(tmp_path, "a.txt", 'HUM:ind Who was "he" ?\nLOC:city Where ?\n')
    form = Table(separator=" ", columns={"label": 0, "text": 1}, cells=Cells.REST, quoting=Quoting.NONE)
    assert [(one.label, one.text) for one in read(LabeledText, [path], form)] == [
        ("HUM:ind", 'Who was "he" ?'),
        ("LOC:city", "Where ?"),
    ]
    fails("line 2: the row has 1 cells", LabeledText, [write(tmp_path, "b.txt", "A b c\nAlone\n")], form)


def test_text_and_label_are_never_guessed_by_their_order(tmp_path):
    path = write(tmp_path, "a.tsv", "label\tsentence\n0\ta film\n")
    fails("no column 'text'; found label, sentence", LabeledText, [path])


def test_quotes_are_text_where_asked(tmp_path):
    path = write(tmp_path, "a.csv", '"a,b"\n')
    assert pairs(read(Pair, [path], Table(quoting=Quoting.NONE)))[0][:2] == ('"a', 'b"')


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_json_lines(tmp_path, suffix):
    rows = [{"source": "a\nb", "target": "ä", "more": 1}, {"target": "d", "source": "c"}]
    path = write(tmp_path, "a.jsonl", "\n\n".join(map(json.dumps, rows)) + "\n", suffix)
    assert pairs(read(Pair, [path])) == [("a\nb", "ä", path.name, 1), ("c", "d", path.name, 3)]


def test_keys_lead_inside(tmp_path):
    row = {"translation": {"en": "a", "de": ["b", "c"]}, "x.y": "dotted", "source": ["one", "two"]}
    path = write(tmp_path, "a.jsonl", json.dumps(row))
    for keys, join, expected in [
        ({"source": "translation.en", "target": "translation.de.1"}, None, ("a", "c")),
        ({"target": "x.y"}, " ", ("one two", "dotted")),
    ]:
        assert pairs(read(Pair, [path], JsonLines(keys=keys, join=join)))[0][:2] == expected
    fails('a string .set join=" "', Pair, [path], JsonLines(keys={"target": "x.y"}))
    fails("no key 'translation.de.2' .for 'target'.", Pair, [path], JsonLines(keys={"target": "translation.de.2"}))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            '{"source": "a", "target": "b"}\n{"source": "a"}\n',
            r"line 2: no key 'target'; found source\. Give the key of 'target'",
        ),
        ('{"source": "a", "target": "b"}\n\n{"source": \n', r"line 3: invalid JSON \(.*character \d+\)"),
        ("[1, 2]\n", r"line 1: expected a JSON object, \{...\}, found '\[1, 2\]'"),
        ('{"source": "a", "target": null}\n', "line 1: 'target' should be a string, found None"),
        ("[" * 100_000, "line 1: the JSON cannot be parsed"),
        ("{\n", "Is the file a single JSON document"),
    ],
)
def test_broken_json_lines(tmp_path, text, match):
    fails(match, Pair, [write(tmp_path, "a.jsonl", text)])


class Dataset:
    """Behaves like a `datasets.Dataset`: not a `Sequence`, but with a length, rows by index, and an iterator."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def __iter__(self):
        return iter(self.rows)


@pytest.mark.parametrize("of", [list, tuple, Dataset])
def test_records(of):
    squad = {"id": "x", "question": "q", "context": "abc", "title": "t"}
    rows = of(
        [
            squad | {"answers": {"text": ["b"], "answer_start": [1]}},
            squad | {"answers": {"text": [], "answer_start": []}},
        ]
    )
    found = list(read(Question, rows))
    assert [[(a.text, a.start) for a in one.answers] for one in found] == [[("b", 1)], []]
    assert [one.line for one in found] == [1, 2]
    tagged = of([{"tokens": ["John", "ran"], "ner": [1, 0]}])
    form = JsonLines(keys={"words": "tokens", "tags": "ner"}, names={"tags": ["O", "I-per"]})
    assert next(read(TaggedSentence, tagged, form)).tags == ("B-per", "O")
    ends = of([{"words": ["Ann", "Lee", "ran"], "tags": ["B-per", "E-per", "O"]}, {"words": ["a"], "tags": ["DT"]}])
    assert [one.tags for one in read(TaggedSentence, ends)] == [("B-per", "I-per", "O"), ("DT",)]
    assert next(read(Document, of([{"text": "x"}]))).text == "x"
    with pytest.raises(ValueError, match="JsonLines"):
        read(Document, of([{"text": "x"}]), Text())


def test_broken_records():
    for rows, example_type, match in [
        ([{"text": "x"}, {"txt": "y"}], Document, "rows, line 2: no key 'text'; found txt"),
        ([{"words": ["a", "b"], "tags": ["O"]}], TaggedSentence, "2 words but 1 tags"),
        ([{"words": ["a"], "tags": [1.5]}], TaggedSentence, "'tags' should be a class name"),
        ([{"text": "a", "label": 0.5}], LabeledText, "'label' should be a class name .*, found 0.5"),
        ([{"question": "q", "context": "c", "answers": [{"text": "c"}]}], Question, "`answer_start`"),
        (
            [{"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": []}}],
            Question,
            "of equal length",
        ),
        ([{"text": "a"}, "b"], Document, "line 2: expected a dictionary, found str"),
    ]:
        fails(match, example_type, rows)


def test_wrong_calls(tmp_path):
    path = write(tmp_path, "a.tsv", "")
    assert list(read(Pair, [path])) == []
    with pytest.raises(ValueError, match=re.escape(f"pass ['{path}']")):
        read(Pair, path.as_posix())
    with pytest.raises(ValueError, match="the tasks are translate"):
        read("translation", [path])
    with pytest.raises(ValueError, match="Text files cannot contain Pair"):
        read(Pair, [path], Text())
    with pytest.raises(ValueError, match="no files"):
        read(Pair, [])
    assert [one.label for one in read(LabeledText, [{"text": "a", "label": "2"}], label_type=LabelType.SCORE)] == [2.0]
