"""Damaged and hostile models, recipes, runs and data: every command ends with a result or with one error line.

No traceback, no hang, no signal, no execution, no write outside of the folder, no control character in a message. The
cases are the same in every run; how many there are depends on the machine. `fuzz_worker.py FOLDER 1 SEED NUMBER`
repeats one case in the folder of a failed test.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from unit.checkpoint.folders import write_folder
from unit.tasks import models
from unit.training.recipes import train
from unit.training.tiny_data import RECIPE, write_recipe

import regard

WORKER = Path(__file__).with_name("fuzz_worker.py")
VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] the dog sleeps a man rides horse end . ##s"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sound files to damage, and a folder that nothing may touch."""
    place = tmp_path_factory.mktemp("fuzz")
    seeds = place / "seeds"
    recipe = write_recipe(seeds, RECIPE.replace("steps = 24", "steps = 4"))
    train(recipe, output=seeds / "run")
    models.translating(seeds / "translate")
    models.continuing(seeds / "generate")
    write_folder(seeds / "classify", "BertForSequenceClassification", num_hidden_layers=1)
    (seeds / "classify" / "vocab.txt").write_text("\n".join(VOCABULARY.split()))
    (seeds / "texts.txt").write_text("the dog sleeps.\nA man rides a horse. The end.\n\n" * 5)
    (place / "outside").mkdir()
    (place / "outside" / "secret").write_text("secret")
    return place


def fuzz(folder, seconds, seed):
    paths = [Path(regard.__file__).parents[1], *map(Path, sys.path[:1])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, WORKER, folder, str(seconds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=seconds + 300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("seconds", "seed"), [(25, 1), pytest.param(600, 2, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_every_command_ends_in_order(folder, seconds, seed, record_property):
    result = fuzz(folder, seconds, seed)
    record_property("fuzz: cases", result["cases"])
    assert not result["violations"], json.dumps(result["violations"], indent=1)
    assert result["cases"] >= seconds / 5
    assert {"0", "1"} <= set(result["codes"])
