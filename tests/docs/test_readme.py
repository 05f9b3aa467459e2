"""The README's code is executed, block after block, as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from unit.training.tiny_data import write_pairs

from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.transformer.network import build

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_python_blocks_run_in_order(tmp_path, monkeypatch):
    """The model that the reader is asked to have is a small BERT."""
    monkeypatch.chdir(tmp_path)
    sizes = dict(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12)
    design, _ = FAMILIES["bert"].read_config(sizes, "BertForMaskedLM")
    save(build(design), tmp_path / "path/to/model")
    torch.manual_seed(0)
    names = {}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    assert (tmp_path / "path/to/copy/model.safetensors").exists()
    assert names["generated"] == [7, 6, 5, 4, 3]  # the ten lines did train a network that reverses
    assert names["activations"]["decoder.blocks.1.cross_attention.weights"][0].shape == (4, 3, 5)


def test_the_way_from_two_files_to_a_translator(tmp_path):
    """Pasted into a shell as it stands, but for the steps: two, where a translator needs thousands."""
    for name, count in (("train", 60), ("val", 10)):
        write_pairs(tmp_path, name, count, seed=count)
        (tmp_path / f"{name}.a").rename(tmp_path / f"{name}.en")
        (tmp_path / f"{name}.b").rename(tmp_path / f"{name}.de")
    (pasted,) = [block for block in blocks("") if "regard recipes translate" in block]
    assert "regard train translate.toml " in pasted
    pasted = pasted.replace("regard train translate.toml ", "regard train translate.toml training.steps=2 ")
    command = f"""regard() {{ '{sys.executable}' -c 'from regard.cli.main import main; main()' "$@"; }}"""
    path = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["sh", "-ec", f"{command}\n{pasted}"], cwd=tmp_path, env=path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "translate" / "curves.svg").exists()
    assert "is in runs/translate/best" in done.stderr


def test_commands_that_it_names_exist():
    from typer.main import get_command

    from regard.cli.main import app

    known = set(get_command(app).commands)
    for line in "".join(blocks("")).splitlines():
        if line.startswith("regard "):
            assert line.split()[1] in known, line


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/design-notes.md", "docs/results.md", "docs/tasks.md"]
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / page).parent / target).exists(), target


def test_make_targets_that_it_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "".join(blocks("")), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
