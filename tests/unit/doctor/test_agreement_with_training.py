"""The doctor and training read recipes and files alike: both see the same examples, or both object to the same line."""

import gzip
import json

import pytest

from regard.data.example import Document, LabeledText, Pair, Question, TaggedSentence
from regard.data.record_batch import MAKERS
from regard.data.source import DataSource
from regard.doctor import examination
from regard.doctor.finding import FindingCollector, Severity
from regard.doctor.recipe_data import data_files, data_formats
from regard.doctor.split_reader import Split, SplitReader
from regard.tasks.registry import TASKS
from regard.tokenization.text_files import DataError
from regard.training.recipe.data_format import label_type
from regard.training.recipe.data_pipeline import make_source
from regard.training.recipe.preflight import check_recipe
from regard.training.recipe.schema import RecipeError, load_data_recipe, load_recipe

REST = '[tokenizer]\nkind = "bpe"\n[network]\nfamily = "bert"\n[training]\nsteps = 1\n'
TEXTS = ["a fine film", "a dull film", "the best of all", "no plot at all", "worth it", "too long by far"]
LABELED = [(text, "good" if number % 2 == 0 else "bad") for number, text in enumerate(TEXTS)]
ROWS = "".join(f"{text}\t{label}\n" for text, label in LABELED)
SWAPPED = "".join(f"{label}\t{text}\n" for text, label in LABELED)
COMMAS = "".join(f'"{text}, they say",{label}\n' for text, label in LABELED)
RECORDS = [{"text": text, "label": label} for text, label in LABELED]
PAIRS = "".join(f"{text}\t{text} auch\n" for text in TEXTS)
CONLL = "Ann\tB-per\nruns\tO\n\nBob\tB-per\nLee\tI-per\n"
BY_NUMBER = "columns = { text = 0, label = 1 }"
CONTEXT = "Ann lives in Rome."


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def squad(**change):
    qa = {"id": "1", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 13}], **change}
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [qa]}]}]})


# name: (task, lines of [data], files, the number of examples or the line of the objection)
GOOD = {
    "header with the names of the fields": ("classify", "", {"a.tsv": "text\tlabel\n" + ROWS}, 6),
    "columns by name": ("classify", 'columns = { text = "s" }', {"a.tsv": "s\tlabel\n" + ROWS}, 6),
    "columns by number, no header": ("classify", BY_NUMBER, {"a.tsv": ROWS}, 6),
    "columns by number, header recognized": ("classify", BY_NUMBER, {"a.tsv": "sentence\tlabel\n" + ROWS}, 6),
    "header by its key": ("classify", BY_NUMBER + '\nheader = "first line"', {"a.tsv": ROWS}, 5),
    "no header by its key": ("classify", BY_NUMBER + '\nheader = "none"', {"a.tsv": "sentence\tlabel\n" + ROWS}, 7),
    "columns from the end": ("classify", "columns = { text = -1, label = 0 }", {"a.tsv": SWAPPED}, 6),
    "pairs in order": ("translate", "", {"a.tsv": PAIRS}, 6),
    "pairs below the names of languages": ("translate", "", {"a.tsv": "English\tGerman\n" + PAIRS}, 6),
    "commas and quotes": ("classify", BY_NUMBER, {"a.csv": COMMAS}, 6),
    "a quoted cell of several lines": ("classify", "", {"a.csv": 'text,label\n"a\nb ""c""\nd",x\n"e",y\n'}, 2),
    "quotes as text": ("classify", BY_NUMBER + '\nquoting = "none"', {"a.csv": '"a,x\nb",y\n'}, 2),
    "another separator": (
        "classify", BY_NUMBER + '\nseparator = ";"', {"a.txt": "a, b;x\nc;y\n"}, 2),
    "label, space, text": (
        "classify", 'columns = { label = 0, text = 1 }\nseparator = " "', {"a.txt": 'x Who was "he" ?\ny Why ?\n'}, 2),
    "cells that are ignored": (
        "classify", BY_NUMBER + '\nseparator = "\\t"\ncells = "at least"', {"a.txt": "a\tx\nb\ty\tmore\n"}, 2),
    "blank rows": ("classify", "", {"a.tsv": "\ntext\tlabel\n\n" + ROWS + " \n"}, 6),
    "JSON Lines": ("classify", "", {"a.jsonl": lines(RECORDS)}, 6),
    "keys that lead inside": (
        "classify", 'columns = { text = "x.y" }', {"a.jsonl": lines([{"x": {"y": "a"}, "label": 1}])}, 1),
    "lists that are joined": (
        "classify", 'join = " "', {"a.jsonl": lines([{"text": ["a", "b"], "label": "x"}])}, 1),
    "tags on one line": ("tag", "", {"a.jsonl": lines([{"words": ["Ann", "ran"], "tags": ["I-per", "O"]}])}, 1),
    "several labels, or none": ("classify", 'objective = "multi_label"', {"a.tsv": "text\tlabel\na\tx, y\nb\t\n"}, 2),
    "scores": ("classify", 'objective = "regression"', {"a.tsv": "text\tlabel\na\t1.5\nb\t-2e3\n"}, 2),
    "CoNLL": ("tag", "", {"a.conll": CONLL}, 2),
    "CoNLL with columns": ("tag", "columns = { word = 1, tag = 2 }", {"a.conll": "1 Ann B-x\n2 ran O\n"}, 1),
    "SQuAD": ("answer", "", {"a.json": squad()}, 1),
    "lines": ("fill", "", {"a.txt": "one\ntwo\n\nthree\n"}, 3),
    "paragraphs": ("fill", 'unit = "paragraph"', {"a.txt": "one\ntwo\n\nthree\n"}, 2),
    "files": ("fill", 'unit = "file"', {"a.txt": "one\ntwo\n\nthree\n"}, 1),
    "parallel files": ("translate", "", {"a.en": "one\ntwo\n", "a.de": "eins\nzwei\n"}, 2),
    "a compressed table": ("classify", "", {"a.tsv.gz": "text\tlabel\n" + ROWS}, 6),
}  # fmt: skip
BAD = {
    "a row with a cell too many": ("classify", "", {"a.tsv": "text\tlabel\n" + ROWS + "a\tb\tc\n"}, 8),
    "a row with a cell too few": ("classify", BY_NUMBER, {"a.tsv": ROWS + "a\n"}, 7),
    "a header of another width": ("classify", 'columns = { text = "s" }', {"a.tsv": "n\ts\tlabel\n" + ROWS}, 1),
    "a column that is not there": ("classify", 'columns = { text = "s" }', {"a.tsv": "text\tlabel\n" + ROWS}, 1),
    "a column out of range": ("classify", "columns = { text = 0, label = 5 }", {"a.tsv": ROWS}, 1),
    "the wrong separator": ("classify", "", {"a.csv": "text\tlabel\n" + ROWS}, 1),
    "a quote that is not closed": ("classify", "", {"a.csv": 'text,label\na,x\n"b,y\nc,x\n'}, 3),
    "a label that is missing": ("classify", BY_NUMBER, {"a.tsv": ROWS + "a text\t \n"}, 7),
    "a score that is no number": ("embed", "columns = { text = 0, label = 1 }", {"a.tsv": "a\t1\nb\tnan\n"}, 2),
    "a score that is a word": ("classify", 'objective = "regression"', {"a.tsv": "text\tlabel\na\t1\nb\tx\n"}, 3),
    "lists without a separator to join them": ("classify", "", {"a.jsonl": lines([{"text": ["a"], "label": 1}])}, 1),
    "broken JSON": ("classify", "", {"a.jsonl": lines(RECORDS) + '{"text": \n'}, 7),
    "a key that is missing": ("classify", "", {"a.jsonl": lines([*RECORDS, {"label": 1}])}, 7),
    "a label that is a fraction": ("classify", "", {"a.jsonl": lines([*RECORDS, {"text": "a", "label": 0.5}])}, 7),
    "more words than tags": ("tag", "", {"a.jsonl": lines([{"words": ["a", "b"], "tags": ["O"]}])}, 1),
    "tags in a wrong order": ("tag", "", {"a.jsonl": lines([{"words": ["a", "b"], "tags": ["S-x", "E-x"]}])}, 1),
    "a word without a tag": ("tag", "", {"a.conll": CONLL + "ran\n"}, 6),
    "a column too many": ("tag", "", {"a.conll": CONLL + "ran\tO\tx\n"}, 6),
    "a wrong tag": ("tag", "", {"a.conll": CONLL + "ran\tO\nhome\tI-loc\n"}, 7),
    "a CoNLL column out of range": ("tag", "columns = { tag = 4 }", {"a.conll": CONLL}, 1),
    "an answer without a start": ("answer", "", {"a.json": squad(answers=[{"text": "Rome"}])}, 1),
    "a question without an id": ("answer", "", {"a.json": squad(id=None)}, 1),
    "not SQuAD": ("answer", "", {"a.json": '{"version": 1}'}, 1),
    "not JSON": ("answer", "", {"a.json": '{"data": [\n x'}, 2),
    "another encoding": ("fill", "", {"a.txt": b"one\ntwo\ncaf\xe9\n"}, 3),
    "a line too many": ("translate", "", {"a.en": "one\ntwo\n", "a.de": "eins\nzwei\ndrei\n"}, 3),
}  # fmt: skip
WRONG_RECIPES = {
    "a key that does not exist": ("classify", "seperator = 1", {"a.tsv": ROWS}, "data.seperator"),
    "a header of another kind": ("classify", 'header = "yes"', {"a.tsv": ROWS}, "data.header"),
    "quoting of another kind": ("classify", 'quoting = "single"', {"a.tsv": ROWS}, "data.quoting"),
    "a unit of another kind": ("fill", 'unit = "page"', {"a.txt": "a\n"}, "data.unit"),
    "a column of another task": ("classify", "columns = { source = 1 }", {"a.tsv": ROWS}, "data.columns"),
    "a CoNLL column by name": ("tag", "columns = { word = 'w' }", {"a.conll": CONLL}, "data.columns.word"),
    "a format that cannot be told": ("classify", "", {"a.txt": ROWS}, "data.train: unknown file format"),
}


def write(folder, task, data, files):
    for name, content in files.items():
        content = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    recipe = folder / "recipe.toml"
    data, _, objective = data.partition("objective = ")
    section = f"[objective]\nkind = {objective}\n" if objective else ""
    recipe.write_text(f'task = "{task}"\n[data]\ntrain = {json.dumps(list(files))}\n{data}\n{section}{REST}')
    return recipe


def read_in_training(path, task):
    """The examples that training reads. A task that is not trained yet is read as its recipe says."""
    if TASKS[task].objectives:
        recipe = load_recipe(path, tasks=TASKS)
        return make_source(recipe, recipe.data.train).read()
    recipe = load_data_recipe(path, tasks=TASKS)
    (file_format,) = data_formats(recipe).values()
    return DataSource(task, recipe.data.train, file_format).read()


def read_by_doctor(path):
    recipe = load_data_recipe(path, tasks=TASKS)
    files, formats = data_files(recipe), data_formats(recipe)
    examined = examination._Examination(
        recipe.task, files, formats, label_type(recipe), FindingCollector(), lambda _: None
    )
    reader = examined._reader(Split.TRAIN, examined.collector, lambda _: None)
    assert isinstance(reader, SplitReader)
    batches = reader.read(Split.TRAIN, files[Split.TRAIN])
    return [example for batch in batches for example in MAKERS[recipe.task.example](batch)]


def blocking(path):
    """The lines of all findings for which training must not start."""
    recipe = load_data_recipe(path, tasks=TASKS)
    report = examination.examine(
        recipe.task, data_files(recipe), file_format=data_formats(recipe), label_type=label_type(recipe), max_lines=99
    )
    kinds = {"one-label", "same-file", "too-many-labels"}  # whole files that can be read, but hardly learned from
    found = [one for one in report.findings if one.severity is Severity.STOP and one.kind not in kinds]
    return sorted(line for one in found for line in one.lines)


def contents(examples):
    fields = {
        Pair: ("source", "target"), Document: ("text",), LabeledText: ("text", "pair", "label"),
        TaggedSentence: ("words", "tags"), Question: ("id", "question", "context", "answers"),
    }  # fmt: skip
    return [(one.line, *(getattr(one, name) for name in fields[type(one)])) for one in examples]


@pytest.mark.parametrize("name", GOOD)
def test_both_see_the_same_examples(tmp_path, name):
    task, data, files, count = GOOD[name]
    path = write(tmp_path, task, data, files)
    examples = contents(read_in_training(path, task))
    assert len(examples) == count
    assert contents(read_by_doctor(path)) == examples
    assert blocking(path) == []


@pytest.mark.parametrize("name", BAD)
def test_both_object_to_the_same_line(tmp_path, name):
    task, data, files, line = BAD[name]
    path = write(tmp_path, task, data, files)
    with pytest.raises(DataError) as error:
        list(read_in_training(path, task))
    assert error.value.line == line
    assert blocking(path)[0] == line


@pytest.mark.parametrize("name", WRONG_RECIPES)
def test_both_object_to_the_same_key(tmp_path, name):
    task, data, files, message = WRONG_RECIPES[name]
    path = write(tmp_path, task, data, files)
    with pytest.raises(RecipeError, match=message):
        check_recipe(load_recipe(path, tasks=TASKS))
    with pytest.raises(RecipeError, match=message):
        data_formats(load_data_recipe(path, tasks=TASKS))
