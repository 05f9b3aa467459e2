"""Run the code blocks of docs/vectors.md in order, and check the commands that it names."""

import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner
from unit.vectors.planted_corpus import planted_text

from regard.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs/vectors.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(planted_text(sentences=3000))
    (tmp_path / "questions.txt").write_text(
        ": capitals\ncountry1 city1 country2 city2\ncountry1 city1 country3 city3\n"
    )
    return tmp_path


def test_python_blocks_run_in_order(folder):
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(code, "vectors.md", "exec"), names)
    assert names["vectors"].analogy("country1", "city1", "country2", count=1)[0].word == "city2"
    assert names["scores"].total.total == 2
    assert names["result"].indices[:, 0].tolist() == [0, 1]


def test_commands_that_it_names_exist():
    commands = get_command(app).commands["vectors"].commands
    lines = re.findall(r"^regard vectors (\w+) (.*)$", PAGE, flags=re.MULTILINE)
    assert {name for name, _ in lines} == set(commands)
    for name, rest in lines:
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--?[a-z-]+", f" {rest}")) <= options


def test_the_first_training_command_runs(folder):
    command = re.search(r"^regard (vectors train .*)$", PAGE, flags=re.MULTILINE)[1].split()
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert (folder / "vectors.txt").read_text().startswith("76 100\n")


def test_the_options_of_the_table_exist():
    from dataclasses import fields

    from regard.vectors.vector_options import GloveOptions, TextOptions, Word2VecOptions

    known = {field.name for kind in (GloveOptions, TextOptions, Word2VecOptions) for field in fields(kind)}
    table = PAGE.partition("| option | meaning |")[2].partition("\n\n")[0]
    names = {
        name
        for row in re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE)
        for name in re.findall(r"`([a-z_]+)`", row)
    }
    assert names == known - {"min_lr", "x_max", "alpha"}


def test_the_recipe_is_valid(tmp_path):
    import tomllib

    from regard.training.recipe.schema import FamilySection

    values = tomllib.loads(re.search(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)[1])
    assert FamilySection.model_validate(values["network"]).embeddings == "vectors.txt"
