"""Parallel files, tables, JSON Lines and records: good ones, and what is said of broken ones."""

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.data.file_fixtures import PACK, many, write

from regard.data.example import Labelled, Pair, Plain, Question, Tagged
from regard.data.fields import Label
from regard.data.formats import Cells, Header, JsonLines, Parallel, Quoting, Table, Text
from regard.data.reader import read
from regard.tokenization.text_files import DataError

CELL = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def pairs(found):
    return [(one.source, one.target, one.file.name, one.line) for one in found]


def fails(match, what, files, form=None):
    with pytest.raises(DataError, match=match):
        list(read(what, files, form))


@pytest.mark.parametrize("ending", PACK)
def test_parallel_files(tmp_path, ending):
    one = write(tmp_path, "a.en", "one\n\nthree\n", ending)
    two = write(tmp_path, "a.de", "eins\nzwei\ndrei", ending)
    name = f"a.en{ending}"
    expected = [("one", "eins", name, 1), ("", "zwei", name, 2), ("three", "drei", name, 3)]
    assert pairs(read(Pair, [one, two])) == pairs(read("translate", [str(one), str(two)])) == expected
    assert len(pairs(read(Pair, [one, two, one, two]))) == 6


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff"), max_size=20)


@given(lines=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=9))
@many
def test_any_text_comes_back_as_it_was_written(tmp_path_factory, lines):
    """All of Unicode: only a line feed ends a line, whatever else Python takes for the end of one."""
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
    fails("two files, source and target.*found 3", Pair, [write(tmp_path, "a.x", "")] * 3, Parallel())
    fails("its ending does not tell", Pair, [write(tmp_path, "a.en", "")])


def test_reading_is_lazy(tmp_path):
    one = write(tmp_path, "a.en", b"good\nbad \xff\n")
    found = read(Pair, [one, one])
    assert next(found).source == "good"
    with pytest.raises(DataError, match="line 2"):
        next(found)


@pytest.mark.parametrize("ending", PACK)
def test_a_table_with_a_header_of_our_names(tmp_path, ending):
    path = write(tmp_path, "a.tsv", "target\tsource\teins\n1\tone\tx\n", ending)
    assert pairs(read(Pair, [path])) == [("one", "1", path.name, 2)]


def test_a_table_without_a_header(tmp_path):
    path = write(tmp_path, "a.tsv", 'He said "hi\tEr sagte "hi\n"\t"\n')
    assert pairs(read(Pair, [path])) == [('He said "hi', 'Er sagte "hi', "a.tsv", 1), ('"', '"', "a.tsv", 2)]


def test_columns_by_name_and_by_number(tmp_path):
    path = write(tmp_path, "a.csv", 'id,sentence,label\n7,a film,good\n8,"bad, bad\nfilm",bad\n9,end,bad\n')
    by_name = read(Labelled, [path], Table(columns={"text": "sentence", "label": "label"}))
    by_number = read(Labelled, [path], Table(columns={"text": 1, "label": -1}, header=Header.FIRST_LINE))
    expected = [("a film", "good", 2), ("bad, bad\nfilm", "bad", 3), ("end", "bad", 5)]
    for found in (by_name, by_number):
        assert [(one.text, one.label, one.line) for one in found] == expected
    no_header = list(read(Labelled, [path], Table(columns={"text": 1, "label": -1})))
    assert (no_header[0].text, no_header[0].line) == ("sentence", 1)


@given(rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=6))
@many
def test_csv_as_the_csv_module_writes_it(tmp_path_factory, rows):
    """The oracle is Python's own writer: quotes, separators and line ends inside cells."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("text", "pair", "label"), *rows])
    path = write(tmp_path_factory.mktemp("csv"), "a.csv", buffer.getvalue())
    assert [(one.text, one.pair, one.label) for one in read(Labelled, [path])] == rows


def test_numbers_as_labels(tmp_path):
    path = write(tmp_path, "sts.csv", "x\t4.5\ta\tb\n" + "x\t1e0\tc\td\tmore\n")
    form = Table(separator="\t", columns={"label": 1, "text": 2, "pair": 3}, cells=Cells.AT_LEAST)
    assert [(one.label, one.pair) for one in read("embed", [path], form)] == [(4.5, "b"), (1.0, "d")]
    assert [one.label for one in read(Labelled, [path], form)] == ["4.5", "1e0"]
    path = write(tmp_path, "bad.csv", "x\t4.5\ta\tb\nx\tnan\tc\td\n")
    fails("line 2: 'label' should be a number, found 'nan'", "embed", [path], form)


def test_names_for_numbers(tmp_path):
    path = write(tmp_path, "a.tsv", "text\tlabel\nx\t1\ny\t0\nz\t2\n")
    found = read(Labelled, [path], Table(names={"label": ["bad", "good"]}))
    assert [next(found).label, next(found).label] == ["good", "bad"]
    with pytest.raises(DataError, match="line 4: 'label' is 2, and there are names for 0 to 1"):
        next(found)


@pytest.mark.parametrize(
    ("name", "text", "form", "match"),
    [
        ("a.tsv", "a\tb\nc\td\te\n", None, r"line 2: the row has 3 cells, expected 2.*Is a separator part of a text"),
        ("a.tsv", "a\tb\nc\n", None, r"line 2: the row has 1 cells, expected 2.*broken in two"),
        ("a.tsv", "a\tb\tc\n", None, r"line 1: there is no 'source'.*found a, b, c\. Say where.*0 to 2"),
        ("a.csv", "a\tb\n", None, r"separated by tabs, so try Table\(separator="),
        ("a.tsv", "a,b\n", None, r"separated by commas"),
        ("a.csv", 'a,b\nc,"d\ne,f\n', None, r"line 2: the row that begins here is no CSV.*left open.*Quoting\.NONE"),
        ("a.csv", 'a,b\n"c"d,e\n', None, r"line 2: .*no CSV"),
        ("a.tsv", "a\tb\n", Table(columns={"source": 0, "target": 5}), r"there is no '5'"),
        ("a.tsv", "a\tb\n", Table(columns={"source": "x", "target": "b"}), r"there is no 'x'.*found a, b"),
        ("a.tsv", "a\tb\n", Table(columns={"text": 0}), r"Pair has no field 'text'; its fields are source, target"),
        ("a.tsv", "a\tb\nc\n", Table(columns={"source": 0, "target": 1}, cells=Cells.AT_LEAST), "expected at least 2"),
        ("a.csv", b"a,b\nc,\xff\n", None, r"line 2: byte 3 .*no UTF-8"),
    ],
)
def test_broken_tables(tmp_path, name, text, form, match):
    fails(match, Pair, [write(tmp_path, name, text)], form)


def test_a_quotation_mark_left_open_does_not_swallow_the_file(tmp_path):
    path = write(tmp_path, "a.csv", 'a,b\n"c,d\n' + ("x" * 999 + ",y\n") * 20_000)
    fails("line 2: .*field larger than field limit", Pair, [path])


def test_the_last_column_can_be_the_rest_of_the_line(tmp_path):
    path = write(tmp_path, "a.txt", 'HUM:ind Who was "he" ?\nLOC:city Where ?\n')
    form = Table(separator=" ", columns={"label": 0, "text": 1}, cells=Cells.REST, quoting=Quoting.NONE)
    assert [(one.label, one.text) for one in read(Labelled, [path], form)] == [
        ("HUM:ind", 'Who was "he" ?'),
        ("LOC:city", "Where ?"),
    ]
    fails("line 2: the row has 1 cells", Labelled, [write(tmp_path, "b.txt", "A b c\nAlone\n")], form)


def test_text_and_label_are_never_guessed_by_their_order(tmp_path):
    path = write(tmp_path, "a.tsv", "label\tsentence\n0\ta film\n")
    fails("there is no 'text'.*found label, sentence", Labelled, [path])


def test_quotes_are_text_where_asked(tmp_path):
    path = write(tmp_path, "a.csv", '"a,b"\n')
    assert pairs(read(Pair, [path], Table(quoting=Quoting.NONE)))[0][:2] == ('"a', 'b"')


@pytest.mark.parametrize("ending", PACK)
def test_json_lines(tmp_path, ending):
    rows = [{"source": "a\nb", "target": "ä", "more": 1}, {"target": "d", "source": "c"}]
    path = write(tmp_path, "a.jsonl", "\n\n".join(map(json.dumps, rows)) + "\n", ending)
    assert pairs(read(Pair, [path])) == [("a\nb", "ä", path.name, 1), ("c", "d", path.name, 3)]


def test_keys_lead_inside(tmp_path):
    row = {"translation": {"en": "a", "de": ["b", "c"]}, "x.y": "dotted", "source": ["one", "two"]}
    path = write(tmp_path, "a.jsonl", json.dumps(row))
    for keys, join, expected in [
        ({"source": "translation.en", "target": "translation.de.1"}, None, ("a", "c")),
        ({"target": "x.y"}, " ", ("one two", "dotted")),
    ]:
        assert pairs(read(Pair, [path], JsonLines(keys=keys, join=join)))[0][:2] == expected
    fails('one text .give join=" "', Pair, [path], JsonLines(keys={"target": "x.y"}))
    fails("there is no 'translation.de.2'", Pair, [path], JsonLines(keys={"target": "translation.de.2"}))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            '{"source": "a", "target": "b"}\n{"source": "a"}\n',
            r"line 2: there is no 'target'.*found source\. Say where",
        ),
        ('{"source": "a", "target": "b"}\n\n{"source": \n', r"line 3: this is no JSON \(.*character \d+\)"),
        ("[1, 2]\n", r"line 1: expected a JSON object, \{...\}, found '\[1, 2\]'"),
        ('{"source": "a", "target": null}\n', "line 1: 'target' should be a text, found None"),
        ("[" * 100_000, "line 1: this JSON cannot be read"),
        ("{\n", "Is the file one JSON document"),
    ],
)
def test_broken_json_lines(tmp_path, text, match):
    fails(match, Pair, [write(tmp_path, "a.jsonl", text)])


class Dataset:
    """As a `datasets.Dataset` behaves: no `Sequence`, but with a length, rows by number, and an iterator."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number]

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
    assert next(read(Tagged, tagged, form)).tags == ("B-per", "O")
    ends = of([{"words": ["Ann", "Lee", "ran"], "tags": ["B-per", "E-per", "O"]}, {"words": ["a"], "tags": ["DT"]}])
    assert [one.tags for one in read(Tagged, ends)] == [("B-per", "I-per", "O"), ("DT",)]
    assert next(read(Plain, of([{"text": "x"}]))).text == "x"
    with pytest.raises(ValueError, match="JsonLines"):
        read(Plain, of([{"text": "x"}]), Text())


def test_broken_records():
    for rows, kind, match in [
        ([{"text": "x"}, {"txt": "y"}], Plain, "rows, line 2: there is no 'text'"),
        ([{"words": ["a", "b"], "tags": ["O"]}], Tagged, "2 words and 1 tags"),
        ([{"words": ["a"], "tags": [1.5]}], Tagged, "'tags' should be a name"),
        ([{"text": "a", "label": 0.5}], Labelled, "'label' should be a name, found 0.5"),
        ([{"question": "q", "context": "c", "answers": [{"text": "c"}]}], Question, "`answer_start`"),
        ([{"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": []}}], Question, "two lists"),
        ([{"text": "a"}, "b"], Plain, "line 2: expected a dictionary, found str"),
    ]:
        fails(match, kind, rows)


def test_wrong_calls(tmp_path):
    path = write(tmp_path, "a.tsv", "")
    assert list(read(Pair, [path])) == []
    with pytest.raises(ValueError, match=re.escape(f"give ['{path}']")):
        read(Pair, path.as_posix())
    with pytest.raises(ValueError, match="the tasks are translate"):
        read("translation", [path])
    with pytest.raises(ValueError, match="Text files hold no Pair"):
        read(Pair, [path], Text())
    with pytest.raises(ValueError, match="no files"):
        read(Pair, [])
    assert [one.label for one in read(Labelled, [{"text": "a", "label": "2"}], label=Label.NUMBER)] == [2.0]
