"""What `--help` shows, and the options that every command has."""

import json
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner
from unit.cli.runner import run, shell
from unit.tasks import models

import regard.progress
from regard.cli.help_format import GROUPS, first_sentence
from regard.cli.main import app, take_verbosity
from regard.version import __version__

COMMANDS = get_command(app).commands


def help_of(*words):
    return CliRunner().invoke(app, [*words, "--help"], terminal_width=100).stdout


def test_commands_are_in_groups_with_whole_sentences():
    shown = " ".join(help_of().split())
    assert "..." not in shown.split("Options:")[0].replace("[ARGS]...", "")
    for name, command in COMMANDS.items():
        assert first_sentence(command.help) in shown, name
    titles = [line[:-1] for line in help_of().splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [*GROUPS, "Options"]  # no command is left over


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_values_have_understandable_names(name):
    shown = help_of(name)
    assert not [mark for mark in ("<str", "<int", "<path", "<list", "list[", "int range") if mark in shown], shown
    assert "{" not in shown.splitlines()[0]
    assert "-q, --quiet" in shown
    assert run(name, "-h").out == run(name, "--help").out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_has_a_sentence(name):
    for parameter in COMMANDS[name].params:
        assert (parameter.help or "").strip().endswith((".", "]", ")")), (name, parameter.name)


def test_version_and_module():
    assert run("--version").out == f"regard {__version__}\n"
    done = subprocess.run([sys.executable, "-m", "regard", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"regard {__version__}\n"


def test_verbosity_stands_before_or_after_the_command(monkeypatch):
    monkeypatch.setattr(regard.progress, "_verbosity", regard.progress.Verbosity.NORMAL)
    assert take_verbosity(["-q", "train", "r.toml"]) == ["train", "r.toml"]
    assert regard.progress.is_quiet()
    assert take_verbosity(["train", "-v", "--", "-q"]) == ["train", "--", "-q"]
    assert not regard.progress.is_quiet()


def test_quiet_writes_errors_only_and_verbose_writes_the_report(tmp_path):
    folder = models.translating(tmp_path / "model")
    long = "the dog " * 3
    normal = shell("translate", folder, long, "--max-new-tokens", "1")
    assert "note:" in normal.err
    quiet = shell("translate", "-q", folder, long, "--max-new-tokens", "1")
    assert (quiet.out, quiet.err) == (normal.out, "")
    assert "error:" in shell("-q", "translate", tmp_path / "nowhere", "a").err
    verbose = shell("-v", "translate", folder, long, "--max-new-tokens", "1")
    assert "native kernels: " in verbose.err
    assert "Traceback" in shell("-v", "translate", tmp_path / "nowhere", "a").err


def test_completion_of_commands():
    environment = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": "regard tra", "COMP_CWORD": "1"}
    done = CliRunner().invoke(app, [], prog_name="regard", env=environment)
    assert done.stdout.split() == ["train", "translate"]


def test_a_missing_device_is_a_plain_error(tmp_path):
    folder = models.translating(tmp_path / "model")
    with pytest.raises(ValueError, match=r"device 'cuda' is not available: .*; use device='cpu'"):
        run("translate", folder, "the dog", "--device", "cuda")
    assert run("translate", folder, "the dog", "--device", "cpu").code == 0


def test_info_names_kernels_threads_and_caches(tmp_path):
    facts = json.loads(run("info", "--json").out)
    assert facts["native kernels"].startswith(("in use: ", "not in use: "))
    assert {"regard", "torch", "processor", "instructions", "threads", "cache"} <= facts.keys()
    lines = run("info").lines
    assert len(lines) == len(facts)


def test_info_says_why_kernels_are_not_used_and_compiles_nothing(tmp_path):
    import os

    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "REGARD_NATIVE": "1"}
    facts = json.loads(shell("info", "--json", env=environment).out)
    if "this machine is" not in facts["native kernels"]:
        assert facts["native kernels"].startswith("not in use: ")
    assert not list(tmp_path.rglob("*.so"))
    off = json.loads(shell("info", "--json", env={**environment, "REGARD_NATIVE": "0"}).out)
    assert off["native kernels"] == "not in use: disabled by the environment variable REGARD_NATIVE"
