"""The pages about checkpoints and networks: their commands are called, their Python is executed."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from code_blocks import code_blocks
from unit.cli.runner import run

from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.transformer.network import build

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A small BERT where the pages have a model."""
    place = tmp_path_factory.mktemp("pages")
    sizes = dict(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12)
    design, _ = FAMILIES["bert"].read_config(sizes, "BertForMaskedLM")
    save(build(design), place / "path/to/model")
    return place


def run_python(page):
    names = {}
    for code in code_blocks((DOCS / page).read_text(encoding="utf-8"), "python"):
        exec(compile(code, page, "exec"), names)
    return names


def test_checkpoints_python(place, monkeypatch):
    monkeypatch.chdir(place)
    names = run_python("checkpoints.md")
    assert (place / "path/to/copy/model.safetensors").exists()
    assert names["classifier"].network(torch.tensor([[5, 6]])).logits.shape == (1, 5)
    summary = names["classifier"].report.summary()
    (count,) = re.findall(r"WARNING: (\d+) parameters", (DOCS / "checkpoints.md").read_text(encoding="utf-8"))
    assert f"WARNING: {count} parameters are not in the checkpoint and are newly initialized" in summary
    assert {value.dtype for value in names["model"].network.parameters()} == {torch.bfloat16}


def test_checkpoints_commands(place, monkeypatch):
    monkeypatch.chdir(place)
    page = (DOCS / "checkpoints.md").read_text(encoding="utf-8")
    lines = [line for block in code_blocks(page) for line in block.splitlines()]
    outputs = [run(*shlex.split(line, comments=True)[1:]) for line in lines]
    assert [called.code for called in outputs] == [0] * len(lines)
    assert "bert-base" in outputs[0].out
    assert (place / "copy" / "model.safetensors").exists()


def test_networks_python():
    names = run_python("networks.md")
    assert names["output"].hidden.shape == (2, 3, 64)
    assert torch.allclose(names["logits"], names["output"].logits[:, 1:], atol=1e-5)  # with and without a cache
    assert names["deeper"].encoder.layers == 4
    assert names["activations"]["decoder.blocks.1.cross_attention.weights"][0].shape == (4, 3, 5)
