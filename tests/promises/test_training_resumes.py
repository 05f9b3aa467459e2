"""A run stopped at any moment, kill -9 included, and resumed gives bit for bit the run that was not stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from unit.training import killing
from unit.training.tiny import RECIPE, write_recipe

import regard

ROOT = str(Path(regard.__file__).parents[1])
EVERYTHING = RECIPE + 'ema = 0.9\naverage = { kind = "best", count = 3 }\npatience = 50\n'


def killed_runs(tmp_path, seed, points):
    write_recipe(tmp_path, EVERYTHING)
    command = [sys.executable, killing.__file__, str(tmp_path), str(seed), str(points)]
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_killed_at_very_many_points(tmp_path, seed):
    check(killed_runs(tmp_path, seed, points=60), 60)
