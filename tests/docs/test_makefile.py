"""`make` prints its steps and results alone, and everything when a step fails."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("ruff", "mypy", "lint-imports", "python")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def make(tmp_path):
    """Run make in a folder whose tools are stand-ins that print a line and exit as the test wants."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)

    def run(*targets, failing=None):
        for tool in TOOLS:
            code = 3 if tool == failing else 0
            (tools / tool).write_text(
                f"#!/bin/sh\necho chatter of {tool} $*\necho 'the last line of {tool}'\nexit {code}\n"
            )
            (tools / tool).chmod(0o755)
        return subprocess.run(["make", *targets], cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_success_is_quiet(make):
    done = make("test")
    assert done.returncode == 0, done.stderr
    assert "chatter" not in done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "the last line of python"  # the summary of pytest
    assert all(line.startswith("== ") for line in lines[:-1])


@pytest.mark.parametrize("tool", ["ruff", "mypy", "lint-imports", "python"])
def test_a_failure_prints_all_of_the_output(make, tool):
    assert make("style").returncode == 0  # sets up
    done = make("test", failing=tool)
    assert done.returncode != 0
    assert f"chatter of {tool}" in done.stdout
    assert f"the last line of {tool}" in done.stdout
    others = [other for other in TOOLS if other != tool]
    assert not [other for other in others if f"chatter of {other}" in done.stdout]
