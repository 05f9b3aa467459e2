import json
import math
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.training.recipes import load_recipe, parse_recipe

from regard.tasks.registry import TASKS
from regard.training.optim.optimizer import AdafactorConfig, AdamWConfig, MuonConfig
from regard.training.optim.schedule import NoamSchedule
from regard.training.recipe import presets, toml
from regard.training.recipe.schema import Recipe, RecipeError, recipe_to_toml
from regard.training.run.run import portable_values

TEXT = """\
# the example of the design
task = "translate"

[data]
train = ["train.en", "train.de"]
valid = ["val.en", "val.de"]

[tokenizer]
kind = "bpe"
size = 8000
shared = true

[network]
family = "transformer"
layers = [4, 4]
model_dim = 128

[training]
batch_tokens = 4096
steps = 8000
optimizer = { kind = "adamw", lr = 2e-3 }
"""


@pytest.fixture
def path(tmp_path):
    place = tmp_path / "recipe.toml"
    place.write_text(TEXT)
    return place


def refused(path, *overrides, text=None):
    if text is not None:
        path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides)
    return str(caught.value).replace(str(path), "recipe.toml")


def test_the_example_of_the_design(path):
    recipe = load_recipe(path)
    assert recipe.training.optimizer == AdamWConfig(lr=2e-3)
    assert recipe.network.layers == (4, 4)
    assert recipe.objective.label_smoothing == 0.1
    assert recipe.data.train == (str(path.parent / "train.en"), str(path.parent / "train.de"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "steps = 8000",
            "stpes = 8000",
            "recipe.toml, line 20: training.stpes: unknown key (did you mean 'steps'?)",
        ),
        (
            "size = 8000",
            "sise = 8000",
            "recipe.toml, line 10: tokenizer.sise: unknown key (did you mean 'size'?)",
        ),
        (
            "model_dim",
            "modeldim",
            "recipe.toml, line 16: network.modeldim: unknown key (did you mean 'model_dim'?)",
        ),
        ("lr = 2e-3", "lrr = 2e-3", "line 21: training.optimizer.lrr: unknown key (did you mean 'lr'?)"),
        ("[data]", "stepps = 3\n[data]", "line 4: stepps: unknown key (did you mean 'training.steps'?)"),
        (
            '"adamw"',
            '"adamm"',
            "training.optimizer: expected one of adamw, adafactor, muon, found 'adamm' (did you mean 'adamw'?)",
        ),
        (
            "batch_tokens = 4096",
            'batch_tokens = "many"',
            "line 19: training.batch_tokens: expected an integer, found 'many'",
        ),
        (
            "batch_tokens = 4096",
            "batch_tokens = 1.5",
            "line 19: training.batch_tokens: expected an integer, found 1.5",
        ),
        (
            "batch_tokens = 4096",
            "batch_tokens = 0",
            "line 19: training.batch_tokens: expected greater than or equal to 1, found 0",
        ),
        (
            "steps = 8000\n",
            "",
            "recipe.toml, line 18: training: no limit: set steps = 8000 (optimizer steps), epochs = 10 or minutes = 60",
        ),
        ("[network]", "[not_network]", "recipe.toml: network: is missing"),
        ('"translate"', '"transalte"', "line 2: task: expected 'translate', 'summarize'"),
        ('"bpe"', '"bep"', "line 9: tokenizer.kind: expected 'bpe', 'wordpiece'"),
        ("shared = true", 'shared = "perhaps"', "line 11: tokenizer.shared: expected true or false, found 'perhaps'"),
        (
            'family = "transformer"',
            'famly = "transformer"',
            "line 13: network: expected one of `family = …`, `preset = …`, `load = …`",
        ),
        ("[4, 4]", "[4, 4, 4]", "line 15: network.layers"),
        ("train = [", "train = 3 #", "line 5: data.train: expected a list, found 3"),
    ],
)
def test_mistakes_are_told_with_line_key_and_remedy(path, old, new, message):
    assert old in TEXT
    assert message in refused(path, text=TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.rate=1", "training.rate: unknown key (did you mean 'training.optimizer.lr'?)"),
        ("training.warmup=9", "training.warmup: unknown key (did you mean 'training.schedule.warmup_steps'?)"),
        ("training.lr=1", "training.lr: unknown key (did you mean 'training.optimizer.lr'?)"),
        ("training.weight_decay=1", "unknown key (did you mean 'training.optimizer.weight_decay'?)"),
        ("training.batch_size=8", "unknown key (did you mean 'batch_tokens'?)"),
        ("trainning.steps=5", "on the command line: trainning: unknown key (did you mean 'training'?)"),
        (
            "training.optimizer.kind=sgd",
            "on the command line: training.optimizer: expected one of adamw, adafactor, muon",
        ),
        (
            "training.optimizer={rate=1e-3}",
            "training.optimizer: `kind` is missing: expected one of adamw, adafactor, muon",
        ),
        (
            "training.optimizer={kind='muon', betas=[0.9, 0.9]}",
            "betas: belongs to kind = 'adamw', not to kind = 'muon'",
        ),
        ("network.layers=0", "network.layers: expected greater than or equal to 1 or a list, found 0"),
        ("data.train=[]", "data.train: expected at least 1 item, found none"),
        ("training.steps=true", "training.steps: expected an integer, found True"),
        ("training.steps='5'", "training.steps: expected an integer, found '5'"),
        ("training.gradient_checkpointing=yes", "training.gradient_checkpointing: expected true or false, found 'yes'"),
        ("training.optimizer.lr=inf", "training.optimizer.lr: expected a finite number, found inf"),
        ("training.average_checkpoints=best", "evaluate_every = 500 is not a multiple of save_every = 300"),
    ],
)
def test_mistakes_that_are_easily_made(path, change, message):
    assert message in refused(path, "training.save_every=300", change)


@pytest.mark.parametrize(("table", "key"), [("network", "family"), ("tokenizer", "kind")])
def test_a_table_that_says_two_things_is_told_once(path, table, key):
    message = refused(path, f"{table}.load=there")
    assert message.endswith(f"{table}.{key}: belongs to `{key}`, not to `load`: remove one of the two")
    assert len(message.splitlines()) == 1


def test_a_kind_alone_is_a_table_with_that_kind(path):
    plan = load_recipe(path, ["training.optimizer=muon", "training.schedule=noam"]).training
    assert (plan.optimizer, plan.schedule) == (MuonConfig(), NoamSchedule(warmup_steps=400))  # of the default schedule
    assert load_recipe(path, ["training.steps=8e3"]).training.steps == 8000


def test_all_mistakes_at_once(path):
    message = refused(path, text=TEXT.replace("tokens", "tokns").replace("size", "sice"))
    assert len(message.splitlines()) == 2


def test_what_is_no_toml(path):
    assert "recipe.toml: not valid TOML: " in refused(path, text="task = \n")
    path.write_bytes(b"task = '\xff'")
    assert "is not UTF-8" in refused(path)
    path.unlink()
    assert "recipe not found: " in refused(path)


def test_mistakes_on_the_command_line(path):
    assert refused(path, "training.stps=3") == "on the command line: training.stps: unknown key (did you mean 'steps'?)"
    assert refused(path, "training.steps") == "'training.steps': expected key=value, as in training.steps=2000"
    assert "task is 'translate', not a table" in refused(path, "task.name=3")


def test_an_objective_that_is_not_the_tasks(path):
    assert "objective.kind = 'causal' does not fit task 'translate'; use 'translate'" in refused(
        path, "objective.kind=causal"
    )


def test_overrides(path):
    words = [
        "training.steps=20",
        "training.schedule={kind='noam', warmup=7}",
        "network.layers=[1, 2]",
        "data.unit=file",
    ]
    recipe = load_recipe(path, [*words, "training.freeze=['source']"])
    assert recipe.training.steps == 20
    assert recipe.training.schedule == NoamSchedule(warmup_steps=7)
    assert recipe.network.layers == (1, 2)
    assert recipe.data.unit == "file"
    assert recipe.training.freeze == ("source",)
    assert load_recipe(path, {"training.steps": 20}) == load_recipe(path, ["training.steps=20"])


def test_a_value_inside_a_value_keeps_the_rest(path):
    assert load_recipe(path, ["training.optimizer.weight_decay=0.1"]).training.optimizer == AdamWConfig(
        lr=2e-3, weight_decay=0.1
    )


@pytest.mark.parametrize("optimizer", [AdamWConfig(lr=1e-4), AdafactorConfig(), MuonConfig(adamw=AdamWConfig(lr=0.5))])
def test_written_and_read_again_is_the_same(path, optimizer):
    recipe = load_recipe(
        path,
        {"training.optimizer": optimizer.model_dump(), "training.average_checkpoints": {"kind": "best", "count": 3}},
    )
    again = path.parent / "elsewhere" / "again.toml"
    again.parent.mkdir()
    again.write_text(recipe_to_toml(recipe))
    assert load_recipe(again) == recipe


def test_a_network_that_is_loaded_brings_its_tokenizer(path):
    text = 'task = "classify"\n[data]\ntrain = ["a.tsv"]\n[network]\nload = "model"\n[training]\nsteps = 3\n'
    path.write_text(text)
    recipe = load_recipe(path)
    assert recipe.tokenizer.load == recipe.network.load == str(path.parent / "model")


def test_every_key_has_a_sentence():
    missing = []

    def look(model, name):
        for key, field in model.model_fields.items():
            if key not in ("kind", "warmup", "teacher", "end", *PLAIN) and not field.description:
                missing.append(f"{name}.{key}")

    for section in ("data", "training"):
        look(Recipe.model_fields[section].annotation, section)
    assert missing == []


PLAIN = ("model_dim", "heads", "dropout")
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=5))
def test_what_is_written_as_toml_is_read_by_tomllib(values):
    assert tomllib.loads(toml.dumps(values)) == values


def test_numbers_without_an_end():
    found = tomllib.loads(toml.dumps({"a": math.inf, "b": -math.inf, "c": math.nan}))
    assert (found["a"], found["b"]) == (math.inf, -math.inf)
    assert math.isnan(found["c"])


@pytest.mark.parametrize("name", presets.preset_names())
def test_ready_recipes_are_right_and_say_what_they_are_for(name, tmp_path):
    recipe = parse_recipe(tomllib.loads(presets.preset_text(name)), tmp_path / "recipe.toml")
    assert len(presets.preset_title(name)) > 20
    assert all(Path(file).parent == tmp_path for file in recipe.data.train)


def test_a_teacher_and_an_agreement_do_not_go_together(tmp_path):
    recipe = tomllib.loads(presets.preset_text("distill"))
    recipe["objective"]["rdrop"] = 1.0
    with pytest.raises(RecipeError, match="distillation and rdrop cannot be combined: remove one"):
        parse_recipe(recipe, tmp_path / "recipe.toml")


def test_an_agreement_that_begins_must_be_there(tmp_path):
    recipe = tomllib.loads(presets.preset_text("translate"))
    recipe["objective"]["rdrop_start_epoch"] = 3
    with pytest.raises(RecipeError, match="rdrop_start_epoch needs rdrop > 0"):
        parse_recipe(recipe, tmp_path / "recipe.toml")


def test_there_is_a_ready_recipe_for_every_objective():
    recipes = [
        parse_recipe(tomllib.loads(presets.preset_text(name)), Path("recipe.toml")) for name in presets.preset_names()
    ]
    kinds = {kind for task in TASKS.values() for kind in task.objectives}
    assert {recipe.objective.kind for recipe in recipes} == kinds
    assert {recipe.task.name for recipe in recipes} == {task.name for task in TASKS.values() if task.objectives}
    assert any(getattr(recipe.objective, "distillation", None) for recipe in recipes)


def test_a_ready_recipe_that_is_not_there():
    with pytest.raises(ValueError, match=r"no preset recipe 'translat' \(did you mean 'translate'\?\)"):
        presets.preset_text("translat")


@pytest.mark.parametrize("value", ["[" * 3000 + "]" * 3000, "{a = " * 500 + "1" + "}" * 500, "[" * 40 + "]" * 40])
def test_deep_nesting_is_an_error_of_one_line(tmp_path, value):
    path = tmp_path / "recipe.toml"
    path.write_text(f"x = {value}\n{TEXT}")
    with pytest.raises(RecipeError, match="nested too deeply"):
        load_recipe(path)
    path.write_text(TEXT)
    with pytest.raises(RecipeError):
        load_recipe(path, [f"data.columns={value}"])


@pytest.mark.parametrize(
    "override",
    ["tokenizer.size=1e9", "training.threads=100000", "network.model_dim=1000000000", "network.layers=1000000"],
)
def test_sizes_that_no_machine_has(tmp_path, override):
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT)
    key = override.partition("=")[0]
    with pytest.raises(RecipeError, match=rf"{key.rpartition('.')[2]}.*less than or equal to"):
        load_recipe(path, [override])


def test_a_recipe_that_is_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "recipe.toml")
    with pytest.raises(RecipeError, match=r"recipe\.toml cannot be read: is a pipe"):
        load_recipe(tmp_path / "recipe.toml")


def test_a_model_does_not_tell_where_its_maker_keeps_files(tmp_path):
    (tmp_path / "recipe.toml").write_text(TEXT)
    recipe = load_recipe(
        tmp_path / "recipe.toml", {"output": f"{tmp_path}/run", "tokenizer": {"load": f"{tmp_path}/words"}}
    )
    values = portable_values(recipe)
    assert values["data"]["train"] == ["train.en", "train.de"]
    assert str(tmp_path) not in json.dumps(values)
    assert (values["output"], values["tokenizer"]["load"]) == ("run", "words")
