"""docs/benchmarks.md is up to date with `benchmarks/results/*.json` (`make docs` writes it again)."""

import json
import re
from pathlib import Path

import make_benchmarks_page as page
import pytest
import result_rows
import run_benchmarks

ROOT = Path(__file__).parents[2]
ROWS = [(name, row) for name, rows in result_rows.read_results().items() for row in rows]


def test_page_is_fresh():
    assert page.PAGE.read_text(encoding="utf-8") == page.markdown()


def test_a_changed_row_makes_the_page_stale(monkeypatch):
    changed = result_rows.read_results()
    changed["core"][0] = result_rows.ResultRow(**{**vars(changed["core"][0]), "ours": 1.0, "ratio": 1895.0})
    monkeypatch.setattr(page, "read_results", lambda: changed)
    assert page.PAGE.read_text(encoding="utf-8") != page.markdown()


def test_ratios_are_those_of_the_values():
    """Values are rounded, so a ratio may differ as much as half a unit of their last digits allows."""
    for name, row in ROWS:
        if row.ratio is None or row.peer is None or row.ours is None:
            continue
        numerator, denominator = (row.peer, row.ours) if row.better == "lower" else (row.ours, row.peer)
        slack = rounding(numerator) / abs(numerator) + rounding(denominator) / abs(denominator) + 0.006 / row.ratio
        assert abs(numerator / denominator / row.ratio - 1) <= slack, f"{name}: {row.what} ({row.peer_name})"


def rounding(value):
    """Half a unit of the last digit that a value is written with."""
    digits = str(value).rstrip("0").partition(".")[2]
    return 0.51 * 10.0 ** -len(digits)


def test_commands_name_scripts_that_exist_and_no_machine():
    for name, row in ROWS:
        for script in re.findall(r"benchmarks/\w+\.py", row.command):
            assert (ROOT / script).is_file(), f"{name}: {row.command}"
        assert not re.search(r"(^|[ =])/", row.command), f"{name}: {row.command} names a folder of one machine"


def test_rows_are_unique():
    for name, rows in result_rows.read_results().items():
        keys = [result_rows.replacement_key(row) for row in rows]
        assert len(keys) == len(set(keys)), name
    anchors = re.findall(r'<a id="([^"]+)">', page.markdown())
    assert len(anchors) == len(set(anchors)) > 100


def test_a_row_replaces_the_one_of_the_same_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks/example.py", "--save", "/some/folder/model"])
    for value in (2.0, 1.6):
        rows = result_rows.ResultRows("example", threads=2, packages=["torch"], results=tmp_path)
        rows.add("loading", "GPT-2, load", "s", ours=value, peer=4.0, peer_name="transformers")
        rows.add("test-set", "a model", "BLEU", ours=value, better="higher")
        rows.save()
    saved = result_rows.read_file(tmp_path / "example.json")
    assert [(row.what, row.ours, row.ratio) for row in saved] == [
        ("a model", 2.0, None), ("GPT-2, load", 1.6, 2.5), ("a model", 1.6, None)
    ]  # fmt: skip
    assert saved[0].command.endswith("python benchmarks/example.py …/model")


def test_unknown_keys_and_kinds_are_errors(tmp_path):
    entry = dict(vars(ROWS[0][1]))
    for changed in (entry | {"speed": 1}, {key: entry[key] for key in entry if key != "date"}):
        (tmp_path / "x.json").write_text(json.dumps([changed]), encoding="utf-8")
        with pytest.raises(TypeError):
            result_rows.read_file(tmp_path / "x.json")
    with pytest.raises(AssertionError, match="unknown kind"):
        result_rows.ResultRow(**entry | {"kind": "speed"})


def test_make_bench_runs_what_is_missing_or_named():
    names = [benchmark.name for benchmark in run_benchmarks.BENCHMARKS]
    assert len(names) == len(set(names))
    for benchmark in run_benchmarks.BENCHMARKS:
        assert (ROOT / "benchmarks" / f"{benchmark.script}.py").is_file()
    assert [item.name for item in run_benchmarks.select(["load"], {})] == ["load"]
    assert [item.name for item in run_benchmarks.select([], {})] == names
    off = result_rows.ResultRow(**{**vars(ROWS[0][1]), "kernels": "off"})
    left = [item.name for item in run_benchmarks.select([], {"core": [off]})]
    assert "core" in left
    assert "core-off" not in left
