"""`regard doctor` on the command line."""

import json

import pytest
from typer.testing import CliRunner
from unit.doctor import corpora

from regard.cli.doctor import spread
from regard.cli.main import app
from regard.tokenization.algorithms import Words
from regard.tokenization.tokenizer_trainer import train


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
    told = spread(["a", "b", "--valid", "c", "d", "--json", "e", "--script", "f=g", "h=i", "--length", "5"])
    assert told == ["a", "b", "--valid", "c", "--valid", "d", "--json", "e", "--script", "f=g", "--script", "h=i",
                    "--length", "5"]  # fmt: skip


def test_nothing_is_wrong(files):
    told = run("--task", "translate", *files[:2], "--valid", *files[2:])
    assert told.exit_code == 0
    assert "Nothing was found. Training can go ahead." in told.stdout
    assert f"{files[3]}: 30 lines" in told.stdout.replace("\n", "")


def test_something_is_wrong(files):
    lines = files[1].read_text().splitlines()
    lines[41] = "Das\x07 Haus steht neben dem Fluss, und niemand sieht es."
    corpora.write(files[1], lines[:77] + lines[78:])
    told = run("--task", "translate", *files[:2])
    assert told.exit_code == 1
    assert "train.en has 100 lines, train.de has 99; by their lengths, they part near line 7" in told.stdout
    assert "line 42: Das\\x07 Haus" in told.stdout
    todo = told.stdout.split("What to do")[1]
    assert "find the line that is too much" in todo
    assert "Training should not go ahead" in todo


def test_json_is_for_machines(files):
    told = run("--task", "translate", *files[:2], "--valid", *files[:2], "--json", "--lines", 3, "--length", 20)
    assert told.exit_code == 1
    report = json.loads(told.stdout)
    assert report["go_ahead"] is False
    (leak,) = [one for one in report["findings"] if one["kind"] == "leakage"]
    assert (leak["severity"], leak["lines"], leak["count"]) == ("stop", [1, 2, 3], 100)
    lengths = [len(line.split()) for line in files[0].read_text().splitlines()]
    spread_ = report["lengths"][0]
    assert (spread_["unit"], spread_["longest"], spread_["texts"]) == ("words", max(lengths), 100)
    assert spread_["over"] == sum(length > 20 for length in lengths)
    assert sum(count for *_, count in spread_["histogram"]) == 100
    for low, high, count in spread_["histogram"]:
        assert count == sum(low <= length <= high for length in lengths)


@pytest.mark.parametrize(("words", "said"), [
    (["nothing.toml"], "nothing.toml: there is no such file"),
    (["a.en", "b.de"], "say what the data is for"),
    (["--task", "translate", "a.en", "b.de"], "a.en: there is no such file"),
    (["--task", "sing", "a.en"], "'sing' is not one of"),
    (["--task", "generate", "a.en", "--script", "Latin"], "expected name=value"),
])  # fmt: skip
def test_a_wrong_call(words, said, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    told = run(*words)
    assert told.exit_code == 2
    assert said in " ".join(told.stderr.replace("│", "").split())


def test_an_odd_number_of_parallel_files(files):
    told = run("--task", "translate", *files[:3])
    assert told.exit_code == 2
    assert "found 3" in told.stderr


def test_a_recipe(files, tmp_path):
    recipe = corpora.write(tmp_path / "recipe.toml", [
        'task = "translate"', "[data]", 'train = ["train.en", "train.de"]', 'valid = ["val.en", "val.de"]',
        "length = 10", "[tokenizer]", 'kind = "bpe"', "size = 8000",
    ])  # fmt: skip
    told = run(recipe, "--json")
    report = json.loads(told.stdout)
    assert len(report["files"]) == 4
    assert {one["kind"] for one in report["findings"]} == {"truncation"}


@pytest.mark.parametrize(("lines", "said"), [
    (["task = 3"], "task is 3; expected one of translate"),
    (['task = "tag"'], "there are no training files"),
    (['task = "tag"', "data = 3"], "data is 3; expected a table"),
    (['task = "tag"', "[data]", "train = 3"], "data.train is 3; expected a list of files"),
    (["task ="], "this is no TOML"),
])  # fmt: skip
def test_a_wrong_recipe(tmp_path, lines, said):
    told = run(corpora.write(tmp_path / "recipe.toml", lines))
    assert told.exit_code == 1
    assert said in str(told.exception)


def test_tokens_that_the_tokenizer_does_not_know(files, tmp_path):
    train(Words(size=1000), [files[0]]).save(tmp_path / "words")
    told = run("--task", "translate", *files[:2], "--tokenizer", tmp_path / "words", "--length", 12, "--json")
    report = json.loads(told.stdout)
    english, german = report["lengths"]
    assert english["unit"] == "tokens"
    assert english["unknown"] == 0
    assert german["unknown"] > 0.5 * german["tokens"]
    (unknown,) = [one for one in report["findings"] if one["kind"] == "unknown-tokens"]
    assert (unknown["file"], unknown["severity"]) == (str(files[1]), "stop")
    assert english["over"] == sum(one["count"] for one in report["findings"] if one["file"] == str(files[0]))


def test_columns_and_labels(tmp_path):
    rows = [f"{label}\tx\t{text}" for text, label in corpora.labelled(40, 1)]
    path = corpora.write(tmp_path / "a.txt", rows)
    told = run("--task", "classify", path, "--separator", "tab", "--columns", "text=2", "label=0", "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["labels"] == {"train": dict.fromkeys(sorted(corpora.LABELS), 10)}
