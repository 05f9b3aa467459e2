"""Disk errors: the last good checkpoint survives, and messages say what to do."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from unit.training.recipes import train
from unit.training.tiny_data import files_of, write_recipe

from regard.checkpoint import tensor_files
from regard.checkpoint.model_folder import CheckpointError
from regard.training.run import state
from regard.training.run.run_dir import RunDir, RunDirError, read_metrics
from regard.training.run.state import TrainingProgress

TENSORS = {"parameter/a": torch.arange(6.0).view(2, 3), "optimizer/a:step": torch.tensor(3.0)}


def put(folder, step, **more):
    return state.save_checkpoint(folder, TrainingProgress(step=step, **more), TENSORS, {"torch": "1"})


def test_what_is_written_is_read(tmp_path):
    progress = TrainingProgress(
        step=5, epoch=2, loss=0.1 + 0.2, best_value=1 / 3, metric_by_step={"4": 1e-17}, finished=True
    )
    place = state.save_checkpoint(tmp_path, progress, TENSORS, {"threads": 2})
    found = state.load_checkpoint(place)
    assert found.progress == progress
    assert found.environment == {"threads": 2}
    assert all(torch.equal(found.tensors[name], TENSORS[name]) for name in TENSORS)


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_a_disk_that_is_full_leaves_the_last_state(tmp_path, monkeypatch, call):
    put(tmp_path, 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(OSError, match="No space left"):
        put(tmp_path, 2)
    monkeypatch.undo()
    assert list(state.list_checkpoints(tmp_path)) == [1]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_library_that_cannot_write_says_so_as_the_disk_does(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(tensor_files, "save_file", refuse)
    with pytest.raises(OSError, match="No space left on device"):
        put(tmp_path, 2)
    assert not state.list_checkpoints(tmp_path)
    assert not list(tmp_path.iterdir())


def drop_checksums(place):
    values = json.loads((place / "state.json").read_text())
    (place / "state.json").write_text(json.dumps({name: values[name] for name in ("environment", "progress")}))


def test_damaged_states_are_told(tmp_path):
    place = put(tmp_path, 3)
    path = place / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=r"step-00000003/state.safetensors is damaged: its checksum is wrong"):
        state.load_checkpoint(place)
    drop_checksums(place)  # as an earlier version wrote it
    with pytest.raises(CheckpointError, match=r"step-00000003 cannot be read .*incomplete"):
        state.load_checkpoint(place)
    (place / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"step-00000003 was written by another version of regard, or is damaged"):
        state.load_checkpoint(place)


def test_pruning_leaves_what_is_wanted_and_clears_what_is_half(tmp_path):
    for step in (1, 2, 3):
        put(tmp_path, step)
    (tmp_path / ".step-00000004.99.part").mkdir()
    state.prune_checkpoints(tmp_path, [1, 3])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000003"]


def test_a_half_line_of_metrics_is_no_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2')
    assert read_metrics(path) == [{"step": 1}]
    path.write_text('{"step": 1}\n{"step": \n{"step": 3}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_metrics(path)


@pytest.mark.parametrize("line", ["null", "[1]", '{"loss": 1.0}', '{"step": "x"}', '{"step": 1, "loss": "high"}'])
def test_a_line_that_is_no_measurement_is_told(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "mean_of": [1, 2]}}\n{line}\n')
    with pytest.raises(
        ValueError, match=r"metrics.jsonl, line 2: expected a JSON object of numbers, one of them `step`"
    ):
        read_metrics(path)


def test_two_processes_do_not_write_into_one_run(tmp_path):
    with RunDir(tmp_path / "run").lock():
        with pytest.raises(
            ValueError, match=r"run is locked by another process: wait for it, or choose another --output"
        ):
            train(write_recipe(tmp_path), {"training.steps": 2}, output=tmp_path / "run")
        assert not any((tmp_path / "run").iterdir())
    train(write_recipe(tmp_path), {"training.steps": 2}, output=tmp_path / "run")


def test_metrics_shorter_than_their_state(tmp_path):
    run = RunDir(tmp_path)
    run.open()
    run.append_metrics({"step": 1})
    with pytest.raises(ValueError, match="has 12 bytes, but had 99"):
        run.truncate_metrics(99)


def test_the_best_network_is_put_back_after_a_sudden_end(tmp_path):
    run = RunDir(tmp_path)
    run.open()
    run.replace_best(lambda place: (place / "weights").write_text("old"), {"step": 1}, 0.5)
    run.best.rename(tmp_path / ".best.old")  # the moment between two renames
    run.open()
    assert (run.best / "weights").read_text() == "old"
    assert run.best_info() == {"step": 1, "value": 0.5}
    with pytest.raises(OSError, match="No space"):
        run.replace_best(full_disk, {"step": 2}, 0.4)
    assert (run.best / "weights").read_text() == "old"


def test_a_damaged_state_is_passed_over(tmp_path, capsys):
    recipe = write_recipe(tmp_path)
    change = {"training.steps": 6, "training.save_every": 2}
    train(recipe, change, output=tmp_path / "run")
    expected = files_of(tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "step-00000006" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    train(recipe, change, output=tmp_path / "run", resume=True)
    stderr = capsys.readouterr().err
    assert "step-00000006/state.safetensors is damaged" in stderr
    assert "resuming from step 4" in stderr
    assert files_of(tmp_path / "run") == expected


def test_a_mean_from_after_the_state_says_nothing_to_it(tmp_path):
    """The run ended with an averaged model, and resumes from an earlier checkpoint: a new best model is saved again."""
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    change = {
        "training.steps": 6,
        "training.save_every": 2,
        "training.evaluate_every": 2,
        "training.best_metric": "bleu",
    }
    change["training.average_checkpoints"] = {"kind": "last", "count": 2}
    first, again = iter([1.0, 2.0, 3.0, 9.0]), iter([3.0, 9.0])
    train(recipe, change, output=run, compute_metrics=lambda _: {"bleu": next(first)})
    expected = files_of(run)
    assert RunDir(run).best_info() == {"step": 6, "averaged_steps": [4, 6], "value": 9.0}
    (run / "checkpoints" / "step-00000006" / "state.safetensors").write_bytes(b"")
    train(recipe, change, output=run, resume=True, compute_metrics=lambda _: {"bleu": next(again)})
    assert files_of(run) == expected


def test_what_cannot_be_read_is_kept_until_the_run_has_passed_it(tmp_path):
    for step in (2, 4, 6):
        put(tmp_path, step)
    (tmp_path / "step-00000006" / "state.json").write_text("{}")
    found, wrong = state.load_last_checkpoint(tmp_path)
    assert (found.progress.step, len(wrong)) == (4, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "damaged-step-00000006",
        "step-00000002",
        "step-00000004",
    ]
    put(tmp_path, 5)
    state.prune_checkpoints(tmp_path, [5])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged-step-00000006", "step-00000005"]
    put(tmp_path, 6)
    state.prune_checkpoints(tmp_path, [6])
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000006"]


def test_a_run_of_which_no_state_can_be_read_is_not_begun_anew(tmp_path):
    recipe = write_recipe(tmp_path)
    train(recipe, {"training.steps": 4}, output=tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("step-*/state.json"):
        drop_checksums(path.parent)
        path.write_text(path.read_text().replace('"progress": {', '"progress": {"from_the_future": 1,'))
    before = files_of(tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=r"another version of regard.*No readable checkpoint is left, .* --overwrite"
    ):
        train(recipe, {"training.steps": 4}, output=tmp_path / "run", resume=True)
    assert files_of(tmp_path / "run") == before


def test_what_differs_is_said(tmp_path, capsys, monkeypatch):
    recipe = write_recipe(tmp_path)
    change = {"training.steps": 4, "training.save_every": 2}
    train(recipe, change, output=tmp_path / "run")
    monkeypatch.setattr(state, "environment", lambda device: {"torch": "9.9", "threads": torch.get_num_threads()})
    capsys.readouterr()
    train(recipe, {**change, "training.steps": 5}, output=tmp_path / "run", resume=True)
    stderr = capsys.readouterr().err
    assert f"torch changed from {torch.__version__} to 9.9: results may differ in the last digits" in stderr
    assert "  training.steps: 4 → 5\n" in stderr


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path):
    recipe = write_recipe(tmp_path)
    train(recipe, {"training.steps": 2}, output=tmp_path / "run")
    before = files_of(tmp_path / "run")
    message = r"already contains a run .checkpoint of step 2.; nothing was changed. Use --resume .* --overwrite"
    with pytest.raises(RunDirError, match=message):
        train(recipe, {"training.steps": 2}, output=tmp_path / "run")
    assert files_of(tmp_path / "run") == before
    train(recipe, {"training.steps": 1}, output=tmp_path / "run", overwrite=True)
    assert list(state.list_checkpoints(tmp_path / "run" / "checkpoints")) == [1]
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 1]


FOREIGN = {
    "recipe.toml": "# my own comment\n",
    "metrics.jsonl": '{"step": 7}\n',
    "best/model.safetensors": "my model",
    "checkpoints/notes.txt": "notes",
    "log.txt": "my log",
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("resume", [False, True])
def test_files_of_somebody_are_not_touched(tmp_path, name, resume):
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    for other, content in {name: FOREIGN[name], ".download.part": "half of a download"}.items():
        (run / other).parent.mkdir(parents=True, exist_ok=True)
        (run / other).write_text(content)
    before = files_of(run) | {"log.txt": (run / "log.txt").exists()}
    shown = name.split("/")[0]
    with pytest.raises(RunDirError, match=rf"run holds {shown}/? but no checkpoint of a run; nothing was changed"):
        train(recipe, {"training.steps": 1}, output=run, resume=resume)
    assert files_of(run) | {"log.txt": (run / "log.txt").exists()} == before


def test_a_foreign_part_file_stays(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".download.part").write_text("half of a download")
    train(write_recipe(tmp_path), {"training.steps": 1}, output=tmp_path / "run")
    assert (tmp_path / "run" / ".download.part").read_text() == "half of a download"


def test_a_finished_run_without_checkpoints_is_not_written_over(tmp_path):
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    train(recipe, {"training.steps": 2}, output=run)
    shutil.rmtree(run / "checkpoints")
    before = files_of(run)
    for resume in (False, True):
        with pytest.raises(RunDirError, match=r"holds recipe.toml, metrics.jsonl, .*best/.* but no checkpoint"):
            train(recipe, {"training.steps": 2}, output=run, resume=resume)
    assert files_of(run) == before


def test_a_run_that_was_stopped_before_its_first_checkpoint(tmp_path, monkeypatch):
    """It can be resumed, from step 0; a plain start would lose its metrics."""
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(state, "save_checkpoint", full_disk)
        with pytest.raises(OSError, match="No space"):
            train(recipe, {"training.steps": 2}, output=run)
    with pytest.raises(RunDirError, match=r"ended before its first checkpoint; nothing was changed. Use --resume"):
        train(recipe, {"training.steps": 2}, output=run)
    train(recipe, {"training.steps": 2}, output=run, resume=True)
    train(recipe, {"training.steps": 2}, output=tmp_path / "other")
    assert files_of(run) == files_of(tmp_path / "other")


@pytest.mark.parametrize("folder", ["/", "~"])
def test_a_root_is_no_run_directory(folder):
    with pytest.raises(RunDirError, match="is not a directory for a run: choose a new --output"):
        RunDir(Path(folder).expanduser()).check(resume=False, overwrite=True)


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(("name", "position"), [("state.safetensors", -2), ("state.safetensors", -20)])
def test_one_flipped_bit_in_the_numbers_is_noticed(tmp_path, name, position):
    place = put(tmp_path, 3)
    flip(place / name, position)
    with pytest.raises(CheckpointError, match=rf"step-00000003/{name} is damaged: its checksum is wrong"):
        state.load_checkpoint(place)


def test_one_flipped_bit_in_a_number_of_the_progress_is_noticed(tmp_path):
    place = put(tmp_path, 3, best_value=0.25)
    content = (place / "state.json").read_bytes()
    flip(place / "state.json", content.index(b"0.25") + 2)  # 0.35: still JSON
    with pytest.raises(CheckpointError, match=r"step-00000003/state.json is damaged: its checksum is wrong"):
        state.load_checkpoint(place)


def test_a_run_falls_back_to_the_checkpoint_before_a_damaged_one(tmp_path, capsys):
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    change = {"training.steps": 4, "training.save_every": 2}
    train(recipe, change, output=run)
    expected = files_of(run)
    flip(run / "checkpoints" / "step-00000004" / "state.safetensors", -5)
    train(recipe, change, output=run, resume=True)
    assert "state.safetensors is damaged: its checksum is wrong; skipped" in capsys.readouterr().err
    assert {name: content for name, content in files_of(run).items() if "damaged-" not in name} == expected


@pytest.mark.parametrize(
    ("key", "value"), [("step", "3"), ("step", 1.5), ("finished", None), ("metric_by_step", [1]), ("best_value", "low")]
)
def test_values_of_the_wrong_type_are_told(tmp_path, key, value):
    """A checkpoint of an earlier version, which has no checksums."""
    place = put(tmp_path, 3)
    stored = json.loads((place / "state.json").read_text())
    old = {"environment": stored["environment"], "progress": {**stored["progress"], key: value}}
    (place / "state.json").write_text(json.dumps(old))
    with pytest.raises(CheckpointError, match=rf"is damaged \({key}.* is "):
        state.load_checkpoint(place)
    (place / "state.json").write_text(json.dumps({**old, "environment": [1], "progress": stored["progress"]}))
    with pytest.raises(CheckpointError, match="is damaged"):
        state.load_checkpoint(place)
