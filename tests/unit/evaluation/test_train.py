"""`regard.train` checks the data before training, and computes the task's metrics during training."""

import json

import pytest
import sacrebleu

import regard
from regard.demo import dates
from regard.evaluation import evaluate
from regard.evaluation import train as train_module
from regard.training.recipe import preflight

RECIPE = """
task = "translate"
[data]
train = ["train.text", "train.iso"]
valid = ["valid.text", "valid.iso"]
[tokenizer]
kind = "bpe"
size = 300
[network]
family = "transformer"
layers = [1, 1]
model_dim = 16
heads = 2
inner_dim = 16
[training]
batch_tokens = 512
steps = 2
evaluate_every = 1
save_every = 2
"""


@pytest.fixture
def recipe(tmp_path):
    for name, count in (("train", 200), ("valid", 10)):
        pairs = list(dates.make_pairs(dates.sample_days(count, seed=count), dates.TRAIN_TEMPLATES, seed=1))
        (tmp_path / f"{name}.text").write_text("".join(f"{text}\n" for text, _ in pairs), encoding="utf-8")
        (tmp_path / f"{name}.iso").write_text("".join(f"{iso}\n" for _, iso in pairs), encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return tmp_path / "recipe.toml"


def test_data_that_has_to_be_mended_is_not_trained_on(recipe):
    target = recipe.with_name("train.iso")
    target.write_text("".join(target.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match=r"must be fixed first(.|\n)*train\.iso(.|\n)*199"):
        regard.train(recipe, output=recipe.with_name("run"))
    assert not recipe.with_name("run").exists()


def test_doubtful_data_is_said_and_trained_on(recipe, capsys):
    target, source = recipe.with_name("train.iso"), recipe.with_name("train.text")
    target.write_text(target.read_text() + "2000-01-01\n")
    source.write_text(source.read_text(encoding="utf-8") + "1.1.2000 \x07\n", encoding="utf-8")
    regard.train(recipe, {"training.steps": 1}, output=recipe.with_name("run"))
    assert "train.text, line 201: " in capsys.readouterr().err


def test_translations_are_measured_and_shown(recipe, monkeypatch, capsys):
    results = []
    translate = evaluate._translate
    monkeypatch.setattr(evaluate, "_translate", lambda *args: results.append(translate(*args)) or results[-1])
    best = regard.train(recipe, output=recipe.with_name("run"))
    lines = [json.loads(line) for line in (recipe.with_name("run") / "metrics.jsonl").read_text().splitlines()]
    bleu = [value for line in lines for name, value in line.items() if name.endswith("bleu")]
    targets = [recipe.with_name("valid.iso").read_text().splitlines()]
    evaluated = [texts for texts in results if len(texts) == 10]
    outputs = [[each.result.text for each in predictions] for predictions in evaluated]
    assert bleu == pytest.approx([sacrebleu.corpus_bleu(texts, targets).score for texts in outputs])
    assert len(bleu) == 2
    assert capsys.readouterr().err.count("    output    ") >= 6
    texts = [translation.text for translation in regard.load(best).translate(["1 May 2000", ""])]
    assert len(texts) == 2
    assert texts[1] == ""


def test_recipe_and_data_are_checked_once(recipe, monkeypatch):
    calls = []
    for name in ("check_recipe", "check_data"):
        check = getattr(train_module, name)
        monkeypatch.setattr(
            train_module, name, lambda parsed, name=name, check=check: calls.append(name) or check(parsed)
        )
    build = preflight.build_on_meta
    monkeypatch.setattr(preflight, "build_on_meta", lambda design: calls.append("network") or build(design))
    regard.train(recipe, {"training.steps": 1}, output=recipe.with_name("run"))
    assert calls == ["check_recipe", "network", "check_data"]


def test_a_header_is_recognized_and_said(recipe, capsys):
    rows = [f"{number} dogs run\t{'yes' if number % 2 else 'no'}\n" for number in range(40)]
    recipe.with_name("a.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    text = RECIPE.replace("translate", "classify").replace('["train.text", "train.iso"]', '["a.tsv"]')
    text = text.replace('["valid.text", "valid.iso"]', "[]\ncolumns = { text = 0, label = 1 }")
    recipe.write_text(text.replace('family = "transformer"\nlayers = [1, 1]', 'family = "bert"\nlayers = 1'))
    best = regard.train(recipe, {"training.steps": 1}, output=recipe.with_name("run"))
    assert (
        "a.tsv, line 1: the first line is read as the names of the columns (sentence, label)" in capsys.readouterr().err
    )
    assert regard.load(best).labels == ("no", "yes")
