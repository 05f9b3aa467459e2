"""Metrics for TensorBoard: with a stand-in for its writer, and read back by the package itself."""

import json
import sys
from types import ModuleType

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from unit.training.recipes import train
from unit.training.tiny_data import write_recipe

from regard.training.run.run_dir import RunDir, read_metrics

MODULE = "torch.utils.tensorboard"


class StandIn:
    """Writes points as lines of JSON, one file per writer, like event files."""

    def __init__(self, place):
        folder = RunDir(place).path
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / f"events.{len(list(folder.iterdir()))}").open("w")

    def add_scalar(self, name, value, step):
        self.file.write(json.dumps([name, step, value]) + "\n")

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.close()


@pytest.fixture
def stand_in(monkeypatch):
    module = ModuleType(MODULE)
    module.SummaryWriter = StandIn
    monkeypatch.setitem(sys.modules, MODULE, module)


def points(run):
    files = sorted((run / "tensorboard").iterdir())
    return [tuple(json.loads(line)) for file in files for line in file.read_text().splitlines()]


def expected(run):
    """Every value of metrics.jsonl, except those of averaged checkpoints."""
    names = {True: "valid/", False: "train/"}
    return [
        (names[name.startswith("valid_")] + name.removeprefix("valid_"), line["step"], value)
        for line in read_metrics(RunDir(run).metrics)
        if "averaged_steps" not in line
        for name, value in line.items()
        if name != "step" and not (name == "epoch" and "valid_loss" in line)
    ]


@pytest.mark.usefixtures("stand_in")
def test_every_number_is_a_point(tmp_path):
    run = tmp_path / "run"
    change = {"training.tensorboard": True, "training.average_checkpoints": {"kind": "last", "count": 2}}
    train(write_recipe(tmp_path), change, output=run)
    assert points(run) == expected(run)
    assert {"train/loss", "train/lr", "valid/loss", "valid/accuracy"} <= {name for name, *_ in points(run)}
    assert any("averaged_steps" in line for line in read_metrics(RunDir(run).metrics))


@pytest.mark.usefixtures("stand_in")
def test_a_run_that_goes_on_has_no_point_twice(tmp_path, monkeypatch):
    """It is stopped two steps after its last checkpoint, and repeats their metrics."""
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    change = {"training.tensorboard": True, "training.log_every": 1}
    add = RunDir.append_metrics

    def stop(folder, values):
        add(folder, values)
        if values["step"] == 10:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunDir, "append_metrics", stop)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, change, output=run)
    monkeypatch.setattr(RunDir, "append_metrics", add)
    assert max(step for _, step, _ in points(run)) == 10
    train(recipe, change, output=run, resume=True)
    assert points(run) == expected(run)
    assert len({(name, step) for name, step, _ in points(run)}) == len(points(run))


def test_without_the_package_it_is_said_how_to_have_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, MODULE, None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"needs the package tensorboard .*pip install 'regard\[tensorboard\]'"):
        train(write_recipe(tmp_path), {"training.tensorboard": True}, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(write_recipe(tmp_path), {"training.steps": 1}, output=tmp_path / "run")  # not enabled, so not needed


def test_tensorboard_itself_reads_them(tmp_path):
    run = tmp_path / "run"
    train(write_recipe(tmp_path), {"training.tensorboard": True}, output=run)
    found = EventAccumulator(str(run / "tensorboard")).Reload()
    read = {(name, e.step): e.value for name in found.Tags()["scalars"] for e in found.Scalars(name)}
    assert read == pytest.approx({(name, step): value for name, step, value in expected(run)})
