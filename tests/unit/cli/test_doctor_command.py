"""`regard doctor` on the command line."""

import json

import pytest
from typer.testing import CliRunner
from unit.doctor import corpora

from regard.cli.doctor import repeat_option_names
from regard.cli.main import app
from regard.tokenization.algorithms import WordLevel
from regard.tokenization.tokenizer_trainer import train_tokenizer


def run(*words):
    return CliRunner().invoke(app, ["doctor", *map(str, words)])


@pytest.fixture
def files(tmp_path):
    sides = corpora.sentences(["en", "de"], 130, 1)
    paths = []
    for name, part in (("train", slice(0, 100)), ("val", slice(100, None))):
        for language, side in zip(("en", "de"), sides, strict=True):
            paths.append(corpora.write(tmp_path / f"{name}.{language}", side[part]))
    return paths


def test_options_that_take_several_words():
    result = repeat_option_names(
        ["a", "b", "--valid", "c", "d", "--json", "e", "--script", "f=g", "h=i", "--max-length", "5"]
    )
    assert result == ["a", "b", "--valid", "c", "--valid", "d", "--json", "e", "--script", "f=g", "--script", "h=i",
                    "--max-length", "5"]  # fmt: skip


def test_nothing_is_wrong(files):
    result = run("--task", "translate", *files[:2], "--valid", *files[2:])
    assert result.exit_code == 0
    assert "No problems found. Training can start." in result.stdout
    assert f"{files[3]}: 30 lines" in result.stdout.replace("\n", "")


def test_something_is_wrong(files):
    lines = files[1].read_text().splitlines()
    lines[41] = "Das\x07 Haus steht neben dem Fluss, und niemand sieht es."
    corpora.write(files[1], lines[:77] + lines[78:])
    result = run("--task", "translate", *files[:2])
    assert result.exit_code == 1
    assert "train.en has 100 lines, train.de has 99; judging by line lengths, they diverge near line 7" in result.stdout
    assert "line 42: Das\\x07 Haus" in result.stdout
    fixes = result.stdout.split("Recommended fixes")[1]
    assert "find the extra line" in fixes
    assert "1 blocking problem: fix before training." in fixes


def test_json_is_for_machines(files):
    result = run("--task", "translate", *files[:2], "--valid", *files[:2], "--json", "--max-lines", 3, "--length", 20)
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert report["max_length"] == 20
    (leak,) = [one for one in report["findings"] if one["kind"] == "leakage"]
    assert leak["message"].startswith("100 lines also in the training data")
    assert (leak["severity"], leak["lines"], leak["count"]) == ("stop", [1, 2, 3], 100)
    lengths = [len(line.split()) for line in files[0].read_text().splitlines()]
    distribution = report["lengths"][0]
    assert (distribution["unit"], distribution["longest"], distribution["texts"]) == ("words", max(lengths), 100)
    assert distribution["over"] == sum(length > 20 for length in lengths)
    assert sum(count for *_, count in distribution["histogram"]) == 100
    for low, high, count in distribution["histogram"]:
        assert count == sum(low <= length <= high for length in lengths)


@pytest.mark.parametrize(("words", "message"), [
    (["nothing.toml"], "nothing.toml: file not found"),
    (["a.en", "b.de"], "expected --task"),
    (["--task", "translate", "a.en", "b.de"], "a.en: file not found"),
    (["--task", "sing", "a.en"], "'sing' is not one of"),
    (["--task", "generate", "a.en", "--script", "Latin"], "expected name=value"),
])  # fmt: skip
def test_a_wrong_call(words, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", "").split())


def test_an_odd_number_of_parallel_files(files):
    result = run("--task", "translate", *files[:3])
    assert result.exit_code == 2
    assert "found 3" in result.stderr


def test_a_recipe(files, tmp_path):
    recipe = corpora.write(tmp_path / "recipe.toml", [
        'task = "translate"', "[data]", 'train = ["train.en", "train.de"]', 'valid = ["val.en", "val.de"]',
        "max_length = 10", "[tokenizer]", 'kind = "bpe"', "size = 8000",
    ])  # fmt: skip
    result = run(recipe, "--json")
    report = json.loads(result.stdout)
    assert len(report["files"]) == 4
    assert {one["kind"] for one in report["findings"]} == {"truncation"}


@pytest.mark.parametrize("key", ["max_length", "length"])
def test_max_length_of_a_recipe(files, tmp_path, key):
    """`length` is the name of version 0.1."""
    lines = ['task = "translate"', "[data]", 'train = ["train.en", "train.de"]', f"{key} = 10"]
    report = json.loads(run(corpora.write(tmp_path / "recipe.toml", lines), "--json").stdout)
    assert report["max_length"] == 10


@pytest.mark.parametrize(("lines", "message"), [
    (["task = 3"], "line 1: task: expected 'translate', 'summarize'"),
    (['task = "tag"'], "data: is missing"),
    (['task = "tag"', "data = 3"], "line 2: data: expected a table"),
    (['task = "tag"', "[data]", "train = 3"], "line 3: data.train: expected a list, found 3"),
    (['task = "tag"', "[data]", 'train = "a"', "columms = 1"], "line 4: data.columms: unknown key"),
    (['task = "tag"', "[data]", 'train = "a"', "[training]", "stpes = 1"], "line 5: training.stpes: unknown key"),
    (['task = "tag"', "[data]", 'train = "a"', "columns = { word = 'x' }"], "data.columns.word is 'x'"),
    (['task = "tag"', "[data]", 'train = "a"', "columns = { text = 1 }"], "data.columns: task 'tag' has word, tag"),
    (["task ="], "not valid TOML"),
])  # fmt: skip
def test_a_wrong_recipe(tmp_path, lines, message):
    result = run(corpora.write(tmp_path / "recipe.toml", lines))
    assert result.exit_code == 1
    assert message in str(result.exception)


def test_tokens_that_the_tokenizer_does_not_know(files, tmp_path):
    train_tokenizer(WordLevel(size=1000), [files[0]]).save(tmp_path / "words")
    result = run("--task", "translate", *files[:2], "--tokenizer", tmp_path / "words", "--max-length", 12, "--json")
    report = json.loads(result.stdout)
    english, german = report["lengths"]
    assert english["unit"] == "tokens"
    assert english["unknown"] == 0
    assert german["unknown"] > 0.5 * german["tokens"]
    (unknown,) = [one for one in report["findings"] if one["kind"] == "unknown-tokens"]
    assert (unknown["file"], unknown["severity"]) == (str(files[1]), "stop")
    assert english["over"] == sum(one["count"] for one in report["findings"] if one["file"] == str(files[0]))


def test_columns_and_labels(tmp_path):
    rows = [f"{label}\tx\t{text}" for text, label in corpora.labeled(40, 1)]
    path = corpora.write(tmp_path / "a.txt", rows)
    result = run("--task", "classify", path, "--separator", "tab", "--columns", "text=2", "label=0", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["labels"] == {"train": dict.fromkeys(sorted(corpora.LABELS), 10)}
