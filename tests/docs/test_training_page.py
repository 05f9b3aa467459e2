"""The code of docs/training.md is executed, and its recipe is a recipe."""

import re
import tomllib
from pathlib import Path

from unit.training.recipes import parse_recipe
from unit.training.tiny_data import batch, ids, write_recipe

from regard.families.registry import FAMILIES
from regard.training.recipe import presets
from regard.training.recipe.training_section import TrainingSection
from regard.transformer.network import build

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_python_blocks_run(tmp_path, monkeypatch):
    write_recipe(tmp_path).rename(tmp_path / "translate.toml")
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks("python"):
        exec(compile(code, "training.md", "exec"), names)
    assert names["best"].resolve() == tmp_path / "runs" / "translate" / "best"
    network = build(
        FAMILIES["gpt2"].read_config(dict(vocab_size=9, n_embd=8, n_layer=1, n_head=2), "GPT2LMHeadModel")[0]
    )
    assert names["Repeat"]().loss(network, batch(tokens=ids([3, 4, 5], [6]))).count == 4


def test_the_recipe_is_a_recipe(tmp_path):
    (text,) = blocks("toml")
    recipe = parse_recipe(tomllib.loads(text), tmp_path / "recipe.toml", text)
    assert recipe.task.name == "translate"


def test_keys_that_it_names_are_there():
    (table,) = re.findall(r"\| purpose \| keys \|.*?\n\n", PAGE, flags=re.DOTALL)
    for key in re.findall(r"`(\w+) = ", table):
        assert key in TrainingSection.model_fields, key


def test_commands_that_it_names_exist():
    from typer.main import get_command

    from regard.cli.main import app

    known = set(get_command(app).commands)
    named = [line.split() for line in "".join(blocks("")).splitlines() if line.startswith("regard ")]
    assert len(named) >= 4
    assert all(words[1] in known for words in named)
    assert all(words[2] in presets.preset_names() for words in named if words[1] == "recipes")
