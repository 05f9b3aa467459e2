"""A command imports only what it needs."""

import gc
import json
import subprocess
import sys

import pytest
from unit.cli.runner import run
from unit.tasks import models

SCRIPT = """
import json, sys
from regard.cli.main import app
try:
    app()
except SystemExit:
    print(json.dumps([name for name in ("pydantic", "rich", "transformers", "sacrebleu") if name in sys.modules]))
"""


def test_translating_imports_only_what_it_needs(tmp_path):
    """typer would import pydantic to validate every option, passed or not."""
    folder = models.translating(tmp_path / "model")
    call = [sys.executable, "-c", SCRIPT, "translate", str(folder), "the dog"]
    lines = subprocess.run(call, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert len(lines) == 2
    assert json.loads(lines[1]) == []


@pytest.mark.parametrize(("words", "code"), [(["--beam", "0"], 2), (["--beam", "many"], 2), (["--beam", "2"], 0)])
def test_options_that_are_given_are_checked_all_the_same(tmp_path, words, code):
    folder = models.translating(tmp_path / "model")
    assert run("translate", folder, "the dog", *words).code == code


def test_garbage_is_looked_for_again_once_a_model_is_open(tmp_path):
    folder = models.translating(tmp_path / "model")
    assert run("translate", folder, "the dog").code == 0
    assert gc.isenabled()
    with pytest.raises(ValueError, match="does not exist"):
        run("translate", tmp_path / "nowhere", "the dog")
    assert gc.isenabled()
