"""A run that is stopped at any moment, also by kill -9, and resumed equals bit for bit one that was not stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from unit.training import kill_and_resume
from unit.training.tiny_data import RECIPE, write_recipe

import regard

ROOT = str(Path(regard.__file__).parents[1])
EVERYTHING = RECIPE + 'ema_decay = 0.9\naverage_checkpoints = { kind = "best", count = 3 }\npatience = 50\n'
DRAWN = (
    EVERYTHING.replace('kind = "words"\nsize = 40', 'kind = "bpe"\nsize = 300')
    .replace("[training]", "[objective]\nrdrop = 1.0\nbpe_dropout = 0.2\n\n[training]")
    .replace('kind = "adamw", lr = 5e-3', 'kind = "muon", lr = 5e-3')
)
"""The most random numbers: BPE-dropout, and two forward passes with different dropout."""
MASKED = """
task = "fill"

[data]
train = ["train.a"]
valid = ["valid.a"]

[tokenizer]
kind = "wordpiece"
size = 60

[network]
family = "roformer"
layers = 1
model_dim = 16
heads = 2
max_length = 16

[training]
batch_tokens = 96
steps = 24
optimizer = { kind = "adafactor", lr = 5e-3 }
schedule = { kind = "cosine", warmup_steps = 5 }
evaluate_every = 8
save_every = 4
"""


def killed_runs(tmp_path, seed, points, recipe=EVERYTHING):
    write_recipe(tmp_path, recipe)
    command = [sys.executable, kill_and_resume.__file__, str(tmp_path), str(seed), str(points)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT, "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def check(found, points):
    assert len(found["killed"]) >= points
    assert {"call", "time"} <= set(found["killed"])
    assert "metrics.jsonl" in found["files"]
    assert "best/model.safetensors" in found["files"]
    assert any(Path(name).name == "state.safetensors" for name in found["files"])
    assert found["different"] == []


def test_killed_at_twenty_random_points(tmp_path):
    check(killed_runs(tmp_path, seed=1, points=20), 20)


@pytest.mark.parametrize("recipe", [DRAWN, MASKED], ids=["R-Drop, BPE-dropout, Muon", "masked, Adafactor"])
def test_killed_in_other_objectives(tmp_path, recipe):
    assert recipe.count("rdrop = 1.0") == recipe.count("muon") == recipe.count('"bpe"') == (recipe is DRAWN)
    check(killed_runs(tmp_path, seed=3, points=8, recipe=recipe), 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_killed_at_very_many_points(tmp_path, seed):
    check(killed_runs(tmp_path, seed, points=60), 60)
