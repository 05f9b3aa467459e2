"""Recipes, checkpoints and metrics of version 0.1 are read under the new names."""

import dataclasses
import json
import tomllib

import pytest
import torch
from unit.training.recipes import load_recipe, parse_recipe, train
from unit.training.tiny_data import RECIPE, write_recipe

from regard.training.recipe.legacy_keys import (
    RENAMED_ENVIRONMENT,
    RENAMED_KEYS,
    RENAMED_METRICS,
    RENAMED_PROGRESS,
    RENAMED_VALUES,
    original_address,
    upgrade,
    upgrade_address,
    upgrade_overrides,
)
from regard.training.recipe.schema import Recipe, RecipeError
from regard.training.run import state
from regard.training.run.run_dir import RunDir, read_metrics

OLD_TRANSLATE = """\
task = "translate"
folder = "there"

[data]
train = ["train.a", "train.b"]
valid = ["valid.a", "valid.b"]
length = 30
long = "refuse"

[tokenizer]
kind = "bpe"

[network]
family = "transformer"
length = 40

[objective]
smoothing = 0.2
agreement = 1.5
agreement_from = 2
splitting = 0.25

[training]
tokens = 96
steps = 24
accumulate = 2
optimizer = { kind = "muon", rate = 5e-3, decay = 0.03, rest = { rate = 4e-3, epsilon = 1e-7, decay = 0.02 } }
schedule = { kind = "inverse_root", warmup = 10 }
clip = 0.5
ema = 0.9
average = { kind = "best", count = 3 }
report_every = 5
evaluate_every = 8
save_every = 4
keep = 3
best = "exact"
recompute = true
"""
NEW_TRANSLATE = """\
task = "translate"
output = "there"

[data]
train = ["train.a", "train.b"]
valid = ["valid.a", "valid.b"]
max_length = 30
too_long = "error"

[tokenizer]
kind = "bpe"

[network]
family = "transformer"
max_length = 40

[objective]
label_smoothing = 0.2
rdrop = 1.5
rdrop_start_epoch = 2
bpe_dropout = 0.25

[training]
batch_tokens = 96
steps = 24
gradient_accumulation_steps = 2
schedule = { kind = "inverse_sqrt", warmup_steps = 10 }
max_grad_norm = 0.5
ema_decay = 0.9
average_checkpoints = { kind = "best", count = 3 }
log_every = 5
evaluate_every = 8
save_every = 4
keep_checkpoints = 3
best_metric = "exact_match"
gradient_checkpointing = true

[training.optimizer]
kind = "muon"
lr = 5e-3
weight_decay = 0.03
adamw = { lr = 4e-3, eps = 1e-7, weight_decay = 0.02 }
"""
OLD_FILL = """\
task = "fill"

[data]
train = ["train.a"]
long = "cut"

[tokenizer]
kind = "wordpiece"

[network]
family = "bert"

[objective]
share = 0.3
whole_words = true
teacher = { load = "teacher", temperature = 3.0, share = 0.7 }

[training]
steps = 24
optimizer = { kind = "adamw", rate = 1e-3, epsilon = 1e-6, decay = 0.1 }
schedule = { kind = "linear", warmup = 5, end = 0.2 }
"""
NEW_FILL = """\
task = "fill"

[data]
train = ["train.a"]
too_long = "truncate"

[tokenizer]
kind = "wordpiece"

[network]
family = "bert"

[objective]
mask_probability = 0.3
whole_word_masking = true
distillation = { teacher = "teacher", temperature = 3.0, alpha = 0.7 }

[training]
steps = 24
optimizer = { kind = "adamw", lr = 1e-3, eps = 1e-6, weight_decay = 0.1 }
schedule = { kind = "linear", warmup_steps = 5, min_lr_ratio = 0.2 }
"""


def load(tmp_path, text, overrides=()):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return load_recipe(path, overrides)


def refused(tmp_path, text, *overrides):
    with pytest.raises(RecipeError) as caught:
        load(tmp_path, text, overrides)
    return str(caught.value).replace(str(tmp_path / "recipe.toml"), "recipe.toml")


# -- recipes


@pytest.mark.parametrize(("old", "new"), [(OLD_TRANSLATE, NEW_TRANSLATE), (OLD_FILL, NEW_FILL)])
def test_an_old_recipe_is_the_new_one(tmp_path, old, new, capsys):
    upgraded = load(tmp_path, old)
    capsys.readouterr()
    assert upgraded == load(tmp_path, new)
    assert capsys.readouterr().err == ""  # nothing to note


def test_the_two_recipes_have_every_old_key_and_value():
    renamed = upgrade(tomllib.loads(OLD_TRANSLATE))[1] | upgrade(tomllib.loads(OLD_FILL))[1]
    keys = {upgrade_address(key) for key in RENAMED_KEYS}
    values = {
        f'{address} = "{new}"'
        for address, names in RENAMED_VALUES.items()
        for new in names.values()
        if address != "training.schedule"  # the shorthand of training.schedule.kind, tested below
    }
    assert {*renamed} == keys | values


def test_every_new_key_is_in_the_schema(tmp_path):
    """A recipe with a single key that does not exist is refused, so both recipes together check all of them."""
    for text in (NEW_TRANSLATE, NEW_FILL):
        assert isinstance(parse_recipe(tomllib.loads(text), tmp_path / "recipe.toml"), Recipe)


def test_a_schedule_in_short(tmp_path, capsys):
    recipe = load(tmp_path, NEW_FILL, ["training.schedule=inverse_root"])
    assert recipe.training.schedule.kind == "inverse_sqrt"
    assert 'training.schedule = "inverse_root" is now training.schedule = "inverse_sqrt"' in capsys.readouterr().err


def test_the_recipe_that_is_upgraded_stays_as_it_was():
    values = tomllib.loads(OLD_TRANSLATE)
    upgrade(values)
    assert values == tomllib.loads(OLD_TRANSLATE)


def test_upgrading_twice_changes_nothing():
    once, _ = upgrade(tomllib.loads(OLD_TRANSLATE))
    assert upgrade(once) == (once, {})
    assert once == tomllib.loads(NEW_TRANSLATE)


def test_tables_with_a_new_name_may_have_old_keys():
    values = {"objective": {"distillation": {"load": "x", "share": 0.5}}}
    assert upgrade(values)[0] == {"objective": {"distillation": {"teacher": "x", "alpha": 0.5}}}
    assert upgrade_address("training.optimizer.adamw.rate") == "training.optimizer.adamw.lr"
    assert upgrade_address("training.optimizer.rest.rate") == "training.optimizer.adamw.lr"


def test_the_note_is_one_line_that_names_the_file_and_all_old_and_new_names(tmp_path, capsys):
    load(tmp_path, OLD_FILL)
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith(f"{tmp_path / 'recipe.toml'}: renamed: ")
    for old, new in (
        ("data.long", "data.too_long"),
        ('data.long = "cut"', 'data.too_long = "truncate"'),
        ("objective.share", "objective.mask_probability"),
        ("objective.teacher", "objective.distillation"),
        ("objective.teacher.load", "objective.distillation.teacher"),
        ("objective.teacher.share", "objective.distillation.alpha"),
        ("training.optimizer.rate", "training.optimizer.lr"),
        ("training.schedule.end", "training.schedule.min_lr_ratio"),
    ):
        assert f"{old} is now {new}" in note


@pytest.mark.parametrize("text", [OLD_TRANSLATE, NEW_TRANSLATE], ids=["old file", "new file"])
@pytest.mark.parametrize("key", ["training.tokens", "training.batch_tokens"])
def test_an_override_wins_whatever_the_names(tmp_path, text, key):
    assert load(tmp_path, text, [f"{key}=77"]).training.batch_tokens == 77
    assert load(tmp_path, text, {key: 77}).training.batch_tokens == 77


@pytest.mark.parametrize("text", [OLD_TRANSLATE, NEW_TRANSLATE], ids=["old file", "new file"])
@pytest.mark.parametrize(
    "override",
    [
        "training.optimizer.rest.rate=0.5",
        "training.optimizer.rest.lr=0.5",
        "training.optimizer.adamw.rate=0.5",
        "training.optimizer.adamw.lr=0.5",
    ],
)
def test_an_override_inside_a_table_keeps_the_other_keys(tmp_path, text, override):
    optimizer = load(tmp_path, text, [override]).training.optimizer
    assert (optimizer.lr, optimizer.adamw.lr, optimizer.adamw.eps) == (5e-3, 0.5, 1e-7)


def test_an_override_that_is_a_table_of_old_keys(tmp_path, capsys):
    recipe = load(tmp_path, NEW_FILL, ["training.schedule={kind='inverse_root', warmup=7}", "data.long=refuse"])
    assert (recipe.training.schedule.kind, recipe.training.schedule.warmup_steps) == ("inverse_sqrt", 7)
    assert recipe.data.too_long == "error"
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("command line: renamed: ")
    assert "training.schedule.warmup is now training.schedule.warmup_steps" in note
    assert 'training.schedule.kind = "inverse_root" is now training.schedule.kind = "inverse_sqrt"' in note
    assert "data.long is now data.too_long" in note


def test_of_two_overrides_the_last_wins():
    assert upgrade_overrides({"training.tokens": 1, "training.batch_tokens": 2})[0] == {"training.batch_tokens": 2}
    assert upgrade_overrides({"training.batch_tokens": 2, "training.tokens": 1})[0] == {"training.batch_tokens": 1}


@pytest.mark.parametrize("lines", ["tokens = 96\nbatch_tokens = 50", "batch_tokens = 50\ntokens = 96"])
def test_both_names_in_one_file_are_an_error_that_names_the_key(tmp_path, lines):
    text = NEW_TRANSLATE.replace("batch_tokens = 96", lines)
    line = text.splitlines().index("tokens = 96") + 1
    message = f"recipe.toml, line {line}: training.tokens: old name of training.batch_tokens: use only the new one"
    assert refused(tmp_path, text) == message
    assert message in refused(tmp_path, text, "training.batch_tokens=1")  # which does not make the file right


def test_both_names_of_a_table(tmp_path):
    text = NEW_FILL.replace("distillation = ", 'teacher = { load = "x" }\ndistillation = ')
    assert "objective.teacher: old name of objective.distillation: use only the new one" in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "wrong", "message"),
    [
        ("tokens = 96", 'tokens = "many"', "training.batch_tokens: expected an integer, found 'many'"),
        ('long = "refuse"', 'long = "shorten"', "data.too_long: expected 'truncate', 'error' or 'window'"),
        ("agreement_from = 2", "agreement_from = -1", "objective.rdrop_start_epoch: expected greater than"),
        ("rest = { rate = 4e-3", "rest = { rate = -1.0", "training.optimizer.adamw.lr: expected greater than 0"),
        ("epsilon = 1e-7", "betas = 3", "training.optimizer.adamw.betas: expected a list, found 3"),
        ("count = 3", "count = 0", "training.average_checkpoints.count: expected greater than or equal to 1"),
        ('folder = "there"', "folder = 3", "output: expected a string, found 3"),
    ],
)
def test_errors_find_the_line_of_an_old_key(tmp_path, old, wrong, message):
    assert old in OLD_TRANSLATE
    text = OLD_TRANSLATE.replace(old, wrong, 1)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if wrong in line)
    assert refused(tmp_path, text).startswith(f"recipe.toml, line {line}: {message}")


def test_the_address_in_the_file_of_a_key_in_a_renamed_table():
    renamed = upgrade(tomllib.loads(OLD_FILL))[1]
    assert original_address("objective.distillation.temperature", renamed) == "objective.teacher.temperature"
    assert original_address("objective.distillation.alpha", renamed) == "objective.teacher.share"
    assert original_address("training.steps", renamed) == "training.steps"


def test_an_old_key_in_the_wrong_table_is_suggested_by_its_new_address(tmp_path):
    assert "training.rate: unknown key (did you mean 'training.optimizer.lr'?)" in refused(
        tmp_path, NEW_FILL, "training.rate=1"
    )


# -- runs


def old_names(values, names):
    back = {new: old for old, new in names.items()}
    return {back.get(name, name): value for name, value in values.items()}


def test_every_renamed_field_of_the_progress_exists():
    fields = {field.name for field in dataclasses.fields(state.TrainingProgress)}
    assert {*RENAMED_PROGRESS.values()} <= fields
    assert {*RENAMED_ENVIRONMENT.values()} <= {*state.environment("cpu")}


def test_an_old_checkpoint_is_read(tmp_path):
    progress = state.TrainingProgress(
        step=8,
        smoothed_loss=3.5,
        lowest_loss=3.25,
        lowest_loss_step=6,
        best_value=0.5,
        best_step=4,
        evaluations_since_best=1,
        metric_by_step={"4": 0.5, "8": 0.25},
        metrics_bytes=289,
    )
    path = state.save_checkpoint(tmp_path, progress, {"parameter/a": torch.ones(2)}, {})
    objective = '{"teacher":{"load":"x","temperature":2.0,"share":0.5},"agreement":0.0,"kind":"masked","share":0.15}'
    machine = {"torch": "2", "compiled parts": "in use", "data": "d", "objective": objective, "best": "exact on d"}
    old = {"machine": machine, "progress": old_names(dataclasses.asdict(progress), RENAMED_PROGRESS)}
    assert {"smooth", "lowest", "lowest_step", "best", "waited", "scores", "metrics"} <= {*old["progress"]}
    (path / "state.json").write_text(json.dumps(old))
    checkpoint = state.load_checkpoint(path)
    assert checkpoint.progress == progress
    environment = dict(checkpoint.environment)
    assert json.loads(environment.pop("objective")) == {
        "distillation": {"teacher": "x", "temperature": 2.0, "alpha": 0.5},
        "rdrop": 0.0,
        "kind": "masked",
        "mask_probability": 0.15,
    }
    assert environment == {"torch": "2", "native library": "in use", "data": "d", "best": "exact_match on d"}


@pytest.mark.parametrize("damage", [{"progress": []}, {"machine": {"objective": "{"}}, {"machine": 3}])
def test_a_damaged_old_checkpoint_is_reported_as_one(tmp_path, damage):
    path = state.save_checkpoint(tmp_path, state.TrainingProgress(step=1), {}, {})
    (path / "state.json").write_text(json.dumps({"machine": {}, "progress": {"step": 1}, **damage}))
    with pytest.raises(state.CheckpointError, match="was written by another version of regard, or is damaged"):
        state.load_checkpoint(path)


def test_old_metrics_are_read_under_the_new_names(tmp_path):
    lines = [
        {"step": 5, "epoch": 0, "loss": 3.0, "rate": 0.1, "gradient": 2.0},
        {"step": 8, "epoch": 0, "valid_loss": 2.0, "valid_exact": 0.5, "valid_f1": 0.6},
        {"step": 8, "mean_of": [4, 8], "valid_loss": 1.5, "valid_exact": 0.6, "valid_f1": 0.7},
        {"step": 10, "epoch": 1, "loss": 2.5, "lr": 0.2, "grad_norm": 1.0},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_metrics(path)
    assert [list(line) for line in found] == [
        ["step", "epoch", "loss", "lr", "grad_norm"],
        ["step", "epoch", "valid_loss", "valid_exact_match", "valid_f1"],
        ["step", "averaged_steps", "valid_loss", "valid_exact_match", "valid_f1"],
        ["step", "epoch", "loss", "lr", "grad_norm"],
    ]
    assert [list(line.values()) for line in found] == [list(line.values()) for line in lines]
    assert {name for line in lines for name in line} >= {*RENAMED_METRICS}


def test_the_note_on_the_best_model_is_read_under_the_new_names(tmp_path):
    run = RunDir(tmp_path)
    run.best.mkdir(parents=True)
    (run.best / "run.json").write_text('{"step": 8, "mean_of": [4, 8], "value": 1.5}')
    assert run.best_info() == {"step": 8, "averaged_steps": [4, 8], "value": 1.5}


def test_an_averaged_model_of_an_old_run_stays_the_best(tmp_path, capsys):
    """best/run.json has `mean_of`; the run resumes, and its last lines name the steps of the average."""
    recipe, run = write_recipe(tmp_path, RECIPE), tmp_path / "run"
    change = {
        "training.steps": 3,
        "training.evaluate_every": 1,
        "training.save_every": 1,
        "training.best_metric": "bleu",
        "training.average_checkpoints": {"kind": "last", "count": 2},
    }
    values = iter([1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0])
    train(recipe, change, output=run, compute_metrics=lambda _: {"bleu": next(values)})
    note = run / "best" / "run.json"
    note.write_text(json.dumps(old_names(json.loads(note.read_text()), RENAMED_METRICS)))
    assert "mean_of" in note.read_text()
    capsys.readouterr()
    more = {**change, "training.steps": 5}
    train(recipe, more, output=run, resume=True, compute_metrics=lambda _: {"bleu": next(values)})
    assert "average of steps 2, 3" in capsys.readouterr().err.splitlines()[-1]
    assert RunDir(run).best_info()["averaged_steps"] == [2, 3]


def test_the_recipe_of_an_old_run_is_compared_without_notes(tmp_path, capsys):
    recipe, run = write_recipe(tmp_path, RECIPE), tmp_path / "run"
    train(recipe, {"training.steps": 2}, output=run)
    text = (run / "recipe.toml").read_text()
    for old, new in (
        ("tokens", "batch_tokens"),
        ("accumulate", "gradient_accumulation_steps"),
        ("clip", "max_grad_norm"),
    ):
        assert f"\n{new} = " in text
        text = text.replace(f"\n{new} = ", f"\n{old} = ")
    text = text.replace("lr = ", "rate = ").replace("inverse_sqrt", "inverse_root")
    (run / "recipe.toml").write_text(text)
    capsys.readouterr()
    train(recipe, {"training.steps": 3}, output=run, resume=True)
    err = capsys.readouterr().err
    assert "is now" not in err
    changes = [line for line in err.splitlines() if " → " in line]
    assert changes == ["  training.steps: 2 → 3"]
    assert "\nbatch_tokens = " in (run / "recipe.toml").read_text()  # rewritten under the new names
