"""Resuming with a changed recipe: more steps, other data, another network."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from unit.training.recipes import train
from unit.training.tiny_data import RECIPE, files_of, write_pairs, write_recipe

from regard.checkpoint.load import load as load_network
from regard.training.run import divergence, state
from regard.training.run.run_dir import RunDir, read_metrics

SHORT = {"training.steps": 6, "training.save_every": 2}


def steps_of(run):
    return [line["step"] for line in read_metrics(run / "metrics.jsonl") if "loss" in line]


@pytest.fixture
def begun(tmp_path):
    """A recipe, and the directory of its finished run."""
    recipe = write_recipe(tmp_path)
    train(recipe, SHORT, output=tmp_path / "run")
    return recipe, tmp_path / "run"


def test_more_steps_are_done(begun):
    recipe, run = begun
    train(recipe, {**SHORT, "training.steps": 10}, output=run, resume=True)
    assert max(state.list_checkpoints(run / "checkpoints")) == 10
    assert steps_of(run)[-1] == 10
    done = files_of(run)
    train(recipe, {**SHORT, "training.steps": 10}, output=run, resume=True)
    assert files_of(run) == done  # nothing is left to do


def test_other_data_is_said_and_begun_once_more(begun, capsys):
    recipe, run = begun
    at = state.load_checkpoint(run / "checkpoints" / "step-00000006").progress
    assert at.batch
    write_pairs(recipe.parent, "train", 30, seed=5)
    train(recipe, {**SHORT, "training.steps": 7}, output=run, resume=True)
    assert "data or batch size changed: starting a new epoch" in capsys.readouterr().err
    assert state.load_checkpoint(run / "checkpoints" / "step-00000007").progress.epoch > at.epoch


def test_larger_batches_too(begun, capsys):
    recipe, run = begun
    train(recipe, {**SHORT, "training.steps": 8, "training.batch_tokens": 600}, output=run, resume=True)
    assert "data or batch size changed: starting a new epoch" in capsys.readouterr().err
    assert max(state.list_checkpoints(run / "checkpoints")) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network.model_dim": 32}, r"does not fit the network: .*Restore \[network\] and \[tokenizer\]"),
        ({"training.optimizer": {"kind": "adafactor"}}, r"belongs to another optimizer .*: restore training.optimizer"),
        ({"tokenizer.size": 30}, r"\[tokenizer\] changed since the run started .*'size': 40.*choose another --output"),
    ],
)
def test_what_a_run_cannot_go_on_with(begun, change, message):
    recipe, run = begun
    before = files_of(run)
    with pytest.raises(ValueError, match=message):
        train(recipe, {**SHORT, "training.steps": 8, **change}, output=run, resume=True)
    assert files_of(run) == before


def test_a_tokenizer_that_was_lost_is_not_replaced_by_another(begun):
    """Trained again on other data, its ids would mean other words. The best model still has the right tokenizer."""
    recipe, run = begun
    shutil.rmtree(run / "cache")
    (recipe.parent / "train.a").write_text("now now now far\n" * 30)
    (recipe.parent / "train.b").write_text("far now now now\n" * 30)
    more = {**SHORT, "training.steps": 8, "tokenizer.size": 40}
    with pytest.raises(ValueError, match=r"trained with a different tokenizer.*set tokenizer.load=.*best"):
        train(recipe, more, output=run, resume=True)
    train(recipe, {**SHORT, "training.steps": 8, "tokenizer": {"load": str(run / "best")}}, output=run, resume=True)
    assert max(state.list_checkpoints(run / "checkpoints")) == 8


def test_more_data_is_not_divergence(tmp_path, monkeypatch):
    """A few lines are soon memorized; the losses of new data are not comparable with theirs."""
    monkeypatch.setattr(divergence, "MIN_STEPS", 20)
    recipe = write_recipe(tmp_path)
    for side in "ab":
        few = (tmp_path / f"train.{side}").read_text().splitlines(keepends=True)
        (tmp_path / f"train.{side}").write_text("".join(few[:2]))
    change = {"training.save_every": 20, "training.evaluate_every": 1000, "objective.label_smoothing": 0.0}
    change |= {"training.optimizer.lr": 0.03, "network.dropout": 0.0}
    train(recipe, {**change, "training.steps": 120}, output=tmp_path / "run")
    assert state.load_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000120").progress.lowest_loss < 0.2
    write_pairs(tmp_path, "train", 120, seed=5)
    train(recipe, {**change, "training.steps": 140}, output=tmp_path / "run", resume=True)
    assert state.load_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000140").progress.lowest_loss > 1


def test_another_measure_finds_its_own_best(begun, capsys):
    """A best loss of 3 must not be compared with an accuracy."""
    recipe, run = begun
    change = {**SHORT, "training.steps": 8, "training.evaluate_every": 2, "training.best_metric": "accuracy"}
    train(recipe, change, output=run, resume=True)
    assert "best_metric or validation data changed: the best model is selected again" in capsys.readouterr().err
    assert state.load_checkpoint(run / "checkpoints" / "step-00000008").progress.best_value <= 1


def test_a_mean_stays_the_best_until_something_is_better(tmp_path, capsys):
    """A run that ended with an averaged model resumes, and keeps that model until a better one is found."""
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    change = {
        "training.evaluate_every": 1,
        "training.save_every": 1,
        "training.best_metric": "bleu",
        "training.steps": 3,
    }
    change["training.average_checkpoints"] = {"kind": "last", "count": 2}

    def go(scores, **more):
        train(recipe, change, output=run, compute_metrics=lambda _: {"bleu": next(scores)}, **more)
        return capsys.readouterr().err.splitlines()[-1]

    assert "the best model (average of steps 2, 3)" in go(iter([1.0, 2.0, 3.0, 9.0]))
    before = files_of(run / "best")
    change["training.steps"] = 5
    assert "the best model (average of steps 2, 3)" in go(iter([4.0, 5.0, 6.0]), resume=True)
    assert files_of(run / "best") == before
    change["training.steps"] = 6
    assert "the best model (step 6)" in go(iter([10.0, 7.0]), resume=True)


@pytest.mark.parametrize("steps", [6, 9])
def test_a_best_network_that_was_removed_is_found_again(begun, steps, capsys):
    """By a run with steps left, and by a finished one."""
    recipe, run = begun
    before = files_of(run)
    shutil.rmtree(run / "best")
    train(recipe, {**SHORT, "training.steps": steps}, output=run, resume=True)
    assert "best is missing: the best model is selected again" in capsys.readouterr().err
    assert steps > 6 or files_of(run) == before
    assert RunDir(run).best_info()["step"] == steps
    kept = load_network(run / "best")[0].named_parameters()
    last = state.load_checkpoint(run / "checkpoints" / f"step-{steps:08}").tensors
    assert all(torch.equal(value, last[f"parameter/{name}"]) for name, value in kept)


@pytest.mark.parametrize("steps", [6, 9])
@pytest.mark.parametrize("message", [None, "no JSON"])
def test_a_run_of_before_there_was_a_note_of_what_is_best(begun, steps, message, capsys):
    recipe, run = begun
    note = run / "best" / "run.json"
    note.unlink() if message is None else note.write_text(message)
    train(recipe, {**SHORT, "training.steps": steps}, output=run, resume=True)
    assert f"the best model (step {steps})" in capsys.readouterr().err


def test_no_network_is_the_best_where_no_measure_is_a_number(tmp_path):
    change = {**SHORT, "training.best_metric": "bleu"}
    with pytest.raises(
        ValueError, match=r"every evaluation gave NaN for 'bleu'.*The last checkpoint is in .*checkpoints"
    ):
        train(write_recipe(tmp_path), change, output=tmp_path / "run", compute_metrics=lambda _: {"bleu": float("nan")})
    assert not (tmp_path / "run" / "best").exists()


def test_a_best_network_that_is_removed_while_the_run_goes_on(tmp_path, capsys):
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    scores = iter([9.0, 1.0])

    def measure(_):
        shutil.rmtree(run / "best", ignore_errors=True)
        return {"bleu": next(scores)}

    change = {
        "training.evaluate_every": 2,
        "training.save_every": 2,
        "training.best_metric": "bleu",
        "training.steps": 4,
    }
    train(recipe, change, output=run, compute_metrics=measure)
    assert "the best model (step 4)" in capsys.readouterr().err.splitlines()[-1]
    assert RunDir(run).best_info() == {"step": 4, "value": 1.0}
    more = {**change, "training.steps": 6}  # compared with the existing best model, not with the removed one
    train(recipe, more, output=run, resume=True, compute_metrics=lambda _: {"bleu": 5.0})
    assert RunDir(run).best_info() == {"step": 6, "value": 5.0}


def test_what_is_not_as_it_was_is_told_by_its_full_name(begun, capsys):
    recipe, run = begun
    train(
        recipe,
        {**SHORT, "training.steps": 6, "data.max_length": 9, "training.optimizer.lr": 1e-3},
        output=run,
        resume=True,
    )
    message = capsys.readouterr().err
    assert "  data.max_length: unset → 9\n" in message
    assert "  training.optimizer.lr: 0.005 → 0.001\n" in message


@pytest.mark.parametrize("change", [{"training.ema_decay": 0.9}, {"training.freeze": ["encoder"]}])
def test_what_it_can(begun, change):
    recipe, run = begun
    before = state.load_checkpoint(run / "checkpoints" / "step-00000006").tensors
    train(recipe, {**SHORT, "training.steps": 8, **change}, output=run, resume=True)
    after = state.load_checkpoint(run / "checkpoints" / "step-00000008").tensors
    moved = {name for name in before if name.startswith("parameter/") and not torch.equal(before[name], after[name])}
    assert moved
    assert any(name.startswith("parameter/encoder") for name in moved) is ("training.freeze" not in change)


def test_a_run_that_failed_before_its_first_state_is_simply_begun(tmp_path):
    recipe = write_recipe(tmp_path)
    with pytest.raises(ValueError, match="no module 'encodr'"):
        train(recipe, {**SHORT, "training.freeze": ["encodr"]}, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()  # the error came before anything was written
    (tmp_path / "run").mkdir()
    (tmp_path / "train.a").write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match=r"train\.a, line 1"):
        train(recipe, SHORT, output=tmp_path / "run")
    write_recipe(tmp_path)
    train(recipe, SHORT, output=tmp_path / "run")  # nothing was kept that could be lost
    assert steps_of(tmp_path / "run") == [5, 6]


def test_a_tokenizer_is_learnt_again_for_other_settings_and_other_data(tmp_path):
    recipe = write_recipe(tmp_path)
    place = tmp_path / "run" / "cache" / "tokenizer"
    sizes = []
    for change in ({}, {"tokenizer.size": 10}, {}):
        train(recipe, {**SHORT, **change}, output=tmp_path / "run", overwrite=True)
        sizes.append(len(json.loads((place / "tokenizer.json").read_text())["model"]["vocab"]))
    assert sizes[0] == sizes[2] > sizes[1] == 10
    (tmp_path / "train.a").write_text((tmp_path / "train.a").read_text().replace("dog", "wolf"))
    train(recipe, SHORT, output=tmp_path / "run", overwrite=True)
    assert "wolf" in json.loads((place / "tokenizer.json").read_text())["model"]["vocab"]


def test_a_new_best_network_comes_with_its_state(tmp_path, monkeypatch):
    """Otherwise a run that is killed and resumed with changes could keep a best model of steps that it never made."""
    recipe = write_recipe(tmp_path)
    there = []
    replace = RunDir.replace_best

    def watched(self, *which):
        there.append(list(state.list_checkpoints(self.checkpoints)))
        replace(self, *which)

    monkeypatch.setattr(RunDir, "replace_best", watched)
    change = {"training.steps": 6, "training.evaluate_every": 2, "training.save_every": 100}
    train(recipe, change, output=tmp_path / "run")
    assert there == [[], [2], [4]]  # each evaluation is better than the one before, and saved its checkpoint


def test_two_vocabularies_of_one_size_are_two(tmp_path):
    for name in ("train", "valid"):
        write_pairs(tmp_path, name, 60, seed=3)
        target = tmp_path / f"{name}.b"
        target.write_text(target.read_text().upper())  # as many words, all different
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.replace("size = 40", "size = 40\nshared = false"))
    best = train(path, SHORT, output=tmp_path / "run")
    tensors = state.load_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000006").tensors
    assert "parameter/target.tokens.weight" in tensors
    config = json.loads((best / "config.json").read_text())
    assert config["share_encoder_decoder_embeddings"] is False
    with pytest.raises(ValueError, match=r"supports only a shared vocabulary: set tokenizer.shared = true"):
        train(path, {**SHORT, "network.family": "mbart"}, output=tmp_path / "other")


LIMITED = """
import resource, signal
from pathlib import Path
from regard.tasks.registry import TASKS
from regard.training.recipe.schema import load_recipe
from regard.training.run.run import run_training
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
run_training(load_recipe({recipe!r}, {change!r}, tasks=TASKS), Path({folder!r}))
"""


def test_a_disk_that_is_full_where_the_library_writes(begun):
    """safetensors has its own error for a full disk; it is reported as an OSError, also for `best`."""
    recipe, run = begun
    large = (run / "best" / "model.safetensors").stat().st_size
    change = {**SHORT, "training.evaluate_every": 1}
    script = LIMITED.format(limit=large - 100, recipe=str(recipe), change=change, folder=str(run.parent / "full"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "OSError: step 1: " in done.stderr
    assert "No checkpoint was saved yet: start the run again" in done.stderr
