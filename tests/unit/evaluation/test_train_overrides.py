"""What a run is started with: overrides, epochs, resuming; and what a finished one says."""

import shlex

import pytest
from unit.training.recipes import load_recipe
from unit.training.tiny_data import RECIPE, batch, ids, write_recipe

import regard
from regard.evaluation.train import next_command, quote, train
from regard.training.recipe.schema import RecipeError, merge_overrides, recipe_to_toml
from regard.training.run.batch_stream import count_tokens
from regard.training.run.reporter import LineReporter
from regard.training.run.run_dir import RunDir, read_metrics


def test_another_schedule_keeps_the_warm_up(tmp_path):
    path = write_recipe(tmp_path)
    schedule = load_recipe(path, ["training.schedule=cosine"]).training.schedule
    assert (schedule.kind, schedule.warmup_steps) == ("cosine", 10)
    explicit = load_recipe(path, ["training.schedule={kind='cosine', warmup_steps=3}"]).training.schedule
    assert explicit.warmup_steps == 3


def test_the_warm_up_of_the_default_schedule_is_kept_too(tmp_path):
    text = RECIPE.replace('schedule = { kind = "inverse_sqrt", warmup_steps = 10 }\n', "")
    path = write_recipe(tmp_path, text)
    default = load_recipe(path).training.schedule.warmup_steps
    assert load_recipe(path, {"training.schedule": "linear"}).training.schedule.warmup_steps == default > 0


def test_epochs_instead_of_steps(tmp_path, capsys):
    """24 batches of 96 tokens are all the data, two of them a step."""
    path = write_recipe(tmp_path)
    best = train(path, ["training.epochs=1.5"], output=tmp_path / "run")
    log = (tmp_path / "run" / "log.txt").read_text()
    steps = int(log.split("training: step 0 of ")[1].split()[0])
    metrics = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert RunDir(best.parent).best_info()["step"] <= steps
    last = max(line["step"] for line in metrics)
    assert last == steps
    assert metrics[-1]["epoch"] == 1
    whole = train(path, ["training.epochs=1"], output=tmp_path / "whole")
    one = max(line["step"] for line in read_metrics(whole.parent / "metrics.jsonl"))
    assert steps == pytest.approx(1.5 * one, abs=1)


def test_an_override_of_epochs_replaces_steps_and_the_other_way_round(tmp_path):
    path = write_recipe(tmp_path)
    settings = load_recipe(path, {"training.epochs": 2}).training
    assert (settings.epochs, settings.steps) == (2, None)
    path.write_text(RECIPE.replace("steps = 24", "epochs = 3"))
    settings = load_recipe(path, {"training.steps": 5}).training
    assert (settings.epochs, settings.steps) == (None, 5)
    path.write_text(RECIPE.replace("steps = 24", "steps = 24\nepochs = 3"))
    with pytest.raises(RecipeError, match="two limits of one kind"):
        load_recipe(path)


def test_a_resumed_run_has_the_overrides_of_its_first_call(tmp_path, capsys):
    path = write_recipe(tmp_path)
    train(path, ["training.steps=4", "training.ema_decay=0.5"], output=tmp_path / "run")
    train(path, ["training.steps=8"], output=tmp_path / "run", resume=True)
    resumed = (tmp_path / "run" / "recipe.toml").read_text()
    assert "ema_decay = 0.5" in resumed
    assert "steps = 8" in resumed
    err = capsys.readouterr().err
    assert "resuming with the values that the run was started with: training.ema_decay=0.5" in err
    assert "training.ema_decay: 0.5 →" not in err
    train(tmp_path / "run", resume=True)  # the folder stands for its recipe
    assert (tmp_path / "run" / "recipe.toml").read_text() == resumed


def test_a_later_override_of_a_table_replaces_its_keys():
    first = {"training.schedule.warmup_steps": 7, "training.steps": 5, "seed": 2}
    assert merge_overrides(first, {"training.schedule": "cosine", "training.epochs": 1}) == {
        "seed": 2, "training.schedule": "cosine", "training.epochs": 1,
    }  # fmt: skip


def test_a_finished_run_says_what_to_do_with_it(tmp_path, capsys, monkeypatch):
    path = write_recipe(tmp_path).rename(tmp_path / "mine.toml")
    monkeypatch.chdir(tmp_path)
    train(path, ["training.steps=2"])
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("use it: "))
    program, command, folder, text = shlex.split(line.removeprefix("use it: "))
    assert (program, command, folder) == ("regard", "translate", "runs/mine")
    assert text in (tmp_path / "valid.a").read_text().splitlines()
    model = regard.load(folder)  # the folder of the run stands for its best model
    assert model.folder.name == "best"
    assert model.translate(text).text == regard.load("runs/mine/best").translate(text).text


def test_the_command_of_a_pair_of_texts_can_be_pasted(tmp_path):
    """A tab would start the completion of the shell."""
    assert quote("it's\ttwo") == r"$'it\'s\ttwo'"
    assert quote("it's") == shlex.quote("it's")
    (tmp_path / "train.tsv").write_text("text\tpair\tlabel\nit rains\tit's dry\tno\nit snows\tit is cold\tyes\n")
    recipe = 'task = "classify"\n[data]\ntrain = "train.tsv"\n[tokenizer]\nkind = "words"\nsize = 40\n' + (
        '[network]\nfamily = "bert"\nlayers = 1\nmodel_dim = 8\nheads = 2\ninner_dim = 8\n[training]\nsteps = 1\n'
    )
    (tmp_path / "recipe.toml").write_text(recipe)
    command = next_command(load_recipe(tmp_path / "recipe.toml"), tmp_path / "a run")
    assert command.startswith(f"regard classify '{tmp_path / 'a run'}' $'")
    assert r"\t" in command


def test_speed_counts_tokens_not_labels(capsys):
    labels = batch(tokens=ids([3, 4, 5, 6, 7, 8]), label=ids([1]))
    assert count_tokens(labels) == 6
    assert count_tokens(batch(source=ids([3, 4, 5]), target=ids([3, 4]))) == 2
    reporter = LineReporter(None, seconds=0.0)
    reporter.begin(0, 9)
    for step in (1, 2):
        reporter.update(step, 9, 1.0, 1, tokens=1_000_000)
    assert reporter.tokens == 2_000_000
    assert reporter.count == 0  # the mean loss was shown, over its own terms


def test_a_long_warm_up_is_named(tmp_path, capsys):
    train(write_recipe(tmp_path), ["training.steps=4"], output=tmp_path / "run")
    assert "the warm-up of the learning rate takes 10 of 4 steps" in capsys.readouterr().err


def test_recorded_recipes_are_read_again(tmp_path):
    recipe = load_recipe(write_recipe(tmp_path), ["training.epochs=2"])
    (tmp_path / "again.toml").write_text(recipe_to_toml(recipe))
    assert load_recipe(tmp_path / "again.toml") == recipe
