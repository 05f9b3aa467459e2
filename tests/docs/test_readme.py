"""The README is true: its commands and code are executed, its figures are those of the benchmarks, its tree exists."""

import re
import shlex
from pathlib import Path

import pytest
import result_rows
import torch
from code_blocks import code_blocks
from unit.cli.runner import run
from unit.training.tiny_data import write_pairs

from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.tasks.registry import TASKS
from regard.transformer.network import build

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands():
    """The lines that call regard, in order."""
    return [line for line in "".join(code_blocks(README)).splitlines() if line.startswith("regard ")]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with the reader's files and model: pairs of sentences, a small BERT."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("train", 60), ("val", 10)):
        write_pairs(tmp_path, name, count, seed=count)
        (tmp_path / f"{name}.a").rename(tmp_path / f"{name}.en")
        (tmp_path / f"{name}.b").rename(tmp_path / f"{name}.de")
    sizes = dict(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12)
    design, _ = FAMILIES["bert"].read_config(sizes, "BertForMaskedLM")
    save(build(design), tmp_path / "path/to/model")
    torch.manual_seed(0)
    return tmp_path


def test_python_blocks_run_in_order(place):
    names = {}
    for code in code_blocks(README, "python"):
        exec(compile(code, "README.md", "exec"), names)
    assert (place / "path/to/copy/model.safetensors").exists()
    source, start, generated = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[1]]), []
    for _ in range(5):  # the ten lines did train a network that reverses
        token = names["network"](source, start).logits[:, -1].argmax(dim=-1, keepdim=True)
        start = torch.cat([start, token], dim=1)
        generated.append(token.item())
    assert generated == [7, 6, 5, 4, 3]
    assert names["activations"]["decoder.blocks.1.cross_attention.weights"][0].shape == (4, 3, 5)


def test_commands_run_in_order(place):
    """As they stand, but for the steps: two, where a translator needs thousands."""
    called = {}
    for line in commands():
        words = shlex.split(line.replace("regard train translate.toml", "regard train translate.toml training.steps=2"))
        called[line] = run(*words[1:])
        assert called[line].code == 0, (line, called[line].err)
    assert (place / "runs/translate/curves.svg").exists()
    assert "is in runs/translate/best" in called["regard train translate.toml"].err
    assert len(called["regard translate runs/translate/int8 val.en"].lines) == 10
    assert called["regard translate runs/translate val.en --beam 5 --json"].lines[0].startswith("{")


def test_figures_are_those_of_their_rows():
    """Every ratio of the README links to the row that it is from."""
    rows = {row.anchor: row for file in reversed(result_rows.read_results().values()) for row in reversed(file)}
    linked = re.findall(r"\[([\d.]+)(×?)\]\(docs/benchmarks\.md#([^)]+)\)", README)
    assert len(linked) >= 10
    for figure, sign, anchor in linked:
        expected = rows[anchor].ratio if sign else rows[anchor].ours
        assert figure == f"{expected:.2f}", f"{anchor}: {expected}"
    unlinked = re.findall(r"[\d.]+×", re.sub(r"\[[^\]]*\]\(docs/benchmarks\.md#[^)]+\)", "", README))
    assert not unlinked, f"{unlinked}: a ratio needs a link to its row"


def test_the_tree_has_every_package_and_nothing_else():
    (tree,) = [block for block in code_blocks(README) if block.startswith("regard/\n")]
    top = {line.split("/")[0] for line in tree.splitlines() if not line.startswith(" ")}
    assert all((ROOT / name).is_dir() for name in top)
    inner = {line.split()[0] for line in tree.splitlines() if line.startswith(" ")}
    packages = {f"{path.parent.name}/" for path in (ROOT / "regard").glob("*/__init__.py")}
    modules = {f"{path.name}" for path in (ROOT / "regard").glob("*.py")}
    assert packages <= inner, f"not in the tree: {packages - inner}"
    assert inner <= packages | modules, f"in the tree, but not in the package: {inner - packages - modules}"


def test_the_tasks_are_those_that_can_be_used():
    named = re.search(r"\*\*Use a model\*\*.*?: (.*?), in Python", README.replace("\n", " "))[1]
    assert set(re.split(r", | or ", named)) == {task.name for task in TASKS.values() if task.prepare}


def test_the_number_of_families():
    named, more = re.search(r"\(([^)]*?) and (\w+) more\)", README.replace("\n", " ")).groups()
    numbers = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
    rows = re.findall(r"^\| (?:19|20)\d\d \|", (ROOT / "docs/families.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named.split(",")) + numbers.index(more) == len(rows) - 1  # the 2017 Transformer is named before


def test_make_targets_that_it_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"```.*?```|`[^`\n]*`", README + contributing, flags=re.DOTALL))
    targets = set(re.findall(r"\bmake ([a-z-]+)", code))
    assert {"demo", "test", "docs"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
