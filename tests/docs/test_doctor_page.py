"""docs/doctor.md: its code runs, its commands parse, and it names every kind of finding as it is."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.main import app
from regard.doctor.finding_kinds import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")


def test_the_code_runs_and_the_command_says_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(code, "doctor.md", "exec"), names)
    assert not names["report"].ok
    shown = re.search(r"```\n\$ regard (doctor .*?)\n(.*?)```", PAGE, flags=re.DOTALL)
    told = CliRunner().invoke(app, shown[1].split()).stdout
    for line in shown[2].splitlines():
        if line and line != "…":
            assert line in told.splitlines(), line


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_kind_is_on_the_page(kind):
    row = re.search(rf"^\| `{kind.name}` \| (.*?) \| (.*?) \| (.*?) \|$", PAGE, flags=re.MULTILINE)
    severity = [kind.severity.value]
    severity += [f"warn from {kind.warn_fraction:.0%}"] if kind.warn_fraction <= 1 else []
    severity += [f"stop from {kind.stop_fraction:.0%}"] if kind.stop_fraction <= 1 else []
    assert row[1] == ", ".join(severity)
    assert row[3] == kind.remedy
