import copy
import json
import math
import os
import signal

import pytest
import torch
from unit.training.tiny_data import batch, files_of, ids
from unit.training.tiny_loop import Fixed, gradients, largest_difference, loop, pairs, parameters

from regard.native.bf16 import bf16_available
from regard.training.modules.fused_modules import Bf16LanguageModel, Bf16Linear
from regard.training.optim.optimizer import AdamWConfig
from regard.training.recipe.training_section import BestCheckpoints, LastCheckpoints
from regard.training.run import divergence, state
from regard.training.run import loop as looping_module
from regard.training.run.divergence import DivergenceError
from regard.training.run.run_dir import read_metrics


def test_an_update_is_the_plain_one(tmp_path):
    """After three optimizer steps the parameters equal those of ten lines of plain torch."""
    given = [pairs(4, seed) for seed in range(3)]
    run = loop(tmp_path, Fixed(*given), steps=3, max_grad_norm=0.5, optimizer=AdamWConfig(lr=1e-2, eps=1e-3))
    network = copy.deepcopy(run.network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-3, weight_decay=0.0)
    run.run()
    for source, target in given:
        rows = batch(source=ids(*source), target=ids(*target))
        loss = run.objective.loss(network.train(), rows)
        optimizer.zero_grad()
        (loss.sum / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimizer.step()
    plain = {name: value.detach() for name, value in network.named_parameters()}
    assert largest_difference(parameters(run), plain) < 1e-9


def test_equal_runs(tmp_path):
    given = Fixed(*[pairs(4, seed) for seed in range(3)])
    runs = [loop(tmp_path / str(number), given, dropout=0.3, dtype=torch.float32) for number in range(2)]
    torch.manual_seed(7)
    for run in runs:
        run.run()
        torch.rand(17)  # random numbers drawn elsewhere do not matter
    one, other = map(parameters, runs)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert runs[0].run_dir.metrics.read_bytes() == runs[1].run_dir.metrics.read_bytes()


def test_another_seed_is_another_run(tmp_path):
    given = Fixed(*[pairs(4, seed) for seed in range(3)])
    runs = [loop(tmp_path / str(seed), given, dropout=0.3, seed=seed) for seed in (1, 2)]
    for run in runs:
        run.run()
    one, other = map(parameters, runs)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_dropout_differs_from_step_to_step():
    seeds = {state.batch_seed(1, epoch, step) for epoch in range(50) for step in range(50)}
    assert len(seeds) == 2500
    assert state.batch_seed(1, 1, 11) != state.batch_seed(1, 11, 1) != state.batch_seed(11, 1, 1)


def test_going_on_from_any_state_is_exact(tmp_path):
    given = Fixed(*[pairs(4, seed) for seed in range(4)])
    plan = dict(
        dropout=0.3,
        dtype=torch.float32,
        steps=7,
        gradient_accumulation_steps=3,
        ema_decay=0.8,
        save_every=1,
        keep_checkpoints=10,
        log_every=3,
    )
    whole = loop(tmp_path / "whole", given, **plan)
    whole.run()
    for step in (1, 3, 6):
        other = loop(tmp_path / f"from-{step}", given, **plan)
        other.run_dir.metrics.write_bytes(whole.run_dir.metrics.read_bytes())
        other.restore(state.load_checkpoint(whole.run_dir.checkpoints / f"step-{step:08d}"))
        assert other.progress.step == step
        other.run()
        one, two = parameters(whole), parameters(other)
        assert all(torch.equal(one[name], two[name]) for name in one)
        assert all(torch.equal(whole.ema[name], other.ema[name]) for name in whole.ema)
        assert whole.run_dir.metrics.read_bytes() == other.run_dir.metrics.read_bytes()
        assert whole.progress == other.progress


def test_the_moving_average_is_its_definition_and_is_what_is_measured(tmp_path):
    seen = []
    given = Fixed(pairs(4))
    run = loop(
        tmp_path,
        given,
        steps=3,
        ema_decay=0.75,
        evaluate_every=1,
        evaluate=lambda: seen.append(parameters(run)) or {"loss": 1.0},
    )
    expected = parameters(run)
    stream = run.batches.iter_from(0, 0)
    run.reporter.begin(0, 3)
    for _ in range(3):
        run.run_step(stream)
        now = parameters(run)
        expected = {name: 0.75 * value + 0.25 * now[name] for name, value in expected.items()}
        assert largest_difference(expected, seen[-1]) < 1e-12
        assert largest_difference(now, seen[-1]) > 1e-6  # and the network keeps its own parameters


def test_metrics_are_means_over_their_steps(tmp_path):
    """A line has the mean loss of all tokens since the previous line."""
    given = [pairs(3, seed) for seed in range(4)]
    run = loop(tmp_path, Fixed(*given), steps=4, log_every=2)
    losses = []
    stream = run.batches.iter_from(0, 0)
    for _ in range(4):
        before = run.progress.step
        losses.append(run.update(stream)[:2])
        run.progress.step = before + 1
        if run.progress.step % 2 == 0:
            run._log_metrics(0.0)
    lines = read_metrics(run.run_dir.metrics)
    for line, two in zip(lines, (losses[:2], losses[2:]), strict=True):
        expected = sum(loss * count for loss, count in two) / sum(count for _, count in two)
        assert line["loss"] == pytest.approx(expected, rel=1e-12)


def test_patience_ends_and_the_best_is_kept(tmp_path):
    values = iter([3.0, 2.0, 2.5, 2.0, 2.1, 1.0])
    run = loop(
        tmp_path, Fixed(pairs(3)), steps=6, evaluate_every=1, patience=3, evaluate=lambda: {"loss": next(values)}
    )
    done = run.run()
    assert (done.step, done.best_value, done.best_step) == (5, 2.0, 2)
    assert [line["valid_loss"] for line in read_metrics(run.run_dir.metrics) if "valid_loss" in line] == [
        3,
        2,
        2.5,
        2,
        2.1,
    ]


def test_more_is_better_for_other_measures(tmp_path):
    values = iter([0.1, 0.4, math.nan, 0.3])
    evaluate = lambda: {"loss": 1.0, "bleu": next(values)}  # noqa: E731
    run = loop(tmp_path, Fixed(pairs(3)), steps=4, evaluate_every=1, best_metric="bleu", evaluate=evaluate)
    assert run.run().best_step == 2


def test_a_measure_that_nobody_gives(tmp_path):
    run = loop(tmp_path, Fixed(pairs(3)), steps=1, best_metric="blue", evaluate=lambda: {"loss": 1.0, "bleu": 2.0})
    with pytest.raises(ValueError, match=r"training\.best_metric is 'blue'; the evaluation gives loss, bleu"):
        run.run()


@pytest.mark.parametrize(
    ("average", "left"),
    [
        (None, [5, 6]),
        (LastCheckpoints(count=4), [3, 4, 5, 6]),
        (BestCheckpoints(count=3), [1, 3, 4, 5, 6]),
    ],
)
def test_states_are_pruned_by_rule(tmp_path, average, left):
    values = iter([1.0, 5.0, 2.0, 1.5, 4.0, 6.0])
    run = loop(
        tmp_path,
        Fixed(pairs(3)),
        evaluate_every=1,
        save_every=1,
        keep_checkpoints=2,
        average_checkpoints=average,
        evaluate=lambda: {"loss": next(values)},
    )
    run.run()
    assert list(state.list_checkpoints(run.run_dir.checkpoints)) == left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop_it_writes_its_state_and_goes_on_exactly(tmp_path, number):
    """The checkpoint of an interruption is not a scheduled one, and must not be averaged."""
    given = Fixed(*[pairs(4, seed) for seed in range(3)])
    plan = dict(dropout=0.3, steps=9, save_every=2, keep_checkpoints=2, average_checkpoints=LastCheckpoints(count=3))
    whole = loop(tmp_path / "whole", given, **plan)
    whole.run()
    run = loop(tmp_path / "run", given, **plan)
    real = run.optimizers.step
    run.optimizers.step = lambda factor: (real(factor), run.progress.step == 7 and os.kill(os.getpid(), number))
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert list(state.list_checkpoints(run.run_dir.checkpoints)) == [2, 4, 6, 7]
    again = loop(tmp_path / "run", given, **plan)
    again.restore(state.load_checkpoint(run.run_dir.checkpoints / "step-00000007"))
    again.run()
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")
    assert list(state.list_checkpoints(run.run_dir.checkpoints)) == [6, 8, 9]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_gradient_checkpointing_changes_nothing(tmp_path):
    given = Fixed(*[pairs(4, seed) for seed in range(2)])
    runs = [loop(tmp_path / str(on), given, dropout=0.2, steps=3, gradient_checkpointing=on) for on in (False, True)]
    for run in runs:
        run.run()
    assert largest_difference(*map(parameters, runs)) < 1e-12


def test_bfloat16_computes_in_bfloat16_and_keeps_float32(tmp_path, monkeypatch):
    monkeypatch.setattr(looping_module, "bf16_available", lambda: False)  # use torch's autocast
    run = loop(tmp_path, Fixed(pairs(4)), dtype=torch.float32, precision="bfloat16", steps=2)
    kinds = set()
    layer = run.network.encoder.blocks[0].feedforward.up
    handle = layer.register_forward_hook(lambda module, given, output: kinds.add(output.dtype))
    run.run()
    handle.remove()
    assert kinds == {torch.bfloat16}
    assert {value.dtype for value in run.network.parameters()} == {torch.float32}


@pytest.mark.skipif(not bf16_available(), reason="this CPU does not compute in bfloat16")
class TestBfloat16ByTheCompiledParts:
    """Linear layers and output projection multiply in bfloat16; inputs and outputs are float32."""

    def runs(self, folder, **plan):
        given = Fixed(*[pairs(4, seed) for seed in range(3)])
        for precision in ("float32", "bfloat16", "bfloat16"):
            folder = folder / "next"
            yield loop(folder, given, dtype=torch.float32, dropout=0.1, precision=precision, steps=3, **plan)

    def test_it_is_near_float32_and_the_same_each_time(self, tmp_path):
        exact, one, other = self.runs(tmp_path)
        for run in (exact, one, other):
            run.run()
        assert 0 < largest_difference(parameters(exact), parameters(one)) < 0.05
        assert largest_difference(parameters(one), parameters(other)) == 0
        assert {value.dtype for value in one.network.parameters()} == {torch.float32}

    def test_gradients(self, tmp_path):
        """Gradients of the same parameters, with factors rounded to bfloat16."""
        exact, one, _ = self.runs(tmp_path, optimizer=AdamWConfig(lr=1e-30))
        for run in (exact, one):
            run.run()
        found, expected = gradients(one), gradients(exact)
        assert found.keys() == expected.keys()
        assert 0 < largest_difference(expected, found) < 0.03

    def test_every_layer_takes_part(self, tmp_path):
        _, run, _ = self.runs(tmp_path)
        layers = [part for part in run.network.modules() if isinstance(part, torch.nn.Linear)]
        assert layers
        assert {type(layer) for layer in layers} == {Bf16Linear}
        assert type(run.network.head) is Bf16LanguageModel

    def test_what_is_measured_is_measured_in_float32(self, tmp_path):
        exact, one, _ = self.runs(tmp_path)
        source, target = torch.tensor([[3, 4, 5]]), torch.tensor([[2, 6]])
        said = [run.network.eval()(source, target).logits for run in (exact, one)]
        assert torch.equal(*said)


def break_at(run, step, address, wrong):
    """From a step on, multiply the output of a module by NaN or infinity."""

    def hook(module, given, output):
        return output * wrong if run.progress.step >= step else None

    return run.network.get_submodule(address).register_forward_hook(hook)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("address", ["encoder.blocks.0.feedforward.up", "decoder.blocks.0.cross_attention.output"])
def test_where_numbers_go_wrong(tmp_path, address, wrong):
    run = loop(tmp_path, Fixed(pairs(4)), save_every=2)
    break_at(run, 3, address, wrong)
    with pytest.raises(DivergenceError) as caught:
        run.run()
    said = str(caught.value)
    assert said.startswith("step 4: the loss or its gradient is not finite")
    assert f"first non-finite output in {address} (its input and parameters are finite)" in said
    assert "Last good checkpoint: step 2" in said
    kept = state.load_checkpoint(run.run_dir.checkpoints / "step-00000002")
    assert all(bool(value.isfinite().all()) for value in kept.tensors.values())


def test_parameters_that_are_wrong_are_named(tmp_path):
    run = loop(tmp_path, Fixed(pairs(4)))
    with torch.no_grad():
        run.network.get_parameter("decoder.blocks.0.feedforward.down.weight")[0, 0] = math.nan
    with pytest.raises(DivergenceError, match=r"the parameters of decoder.blocks.0.feedforward.down are not finite"):
        run.run()


def test_a_gradient_that_goes_wrong_on_the_way_back(tmp_path):
    run = loop(tmp_path, Fixed(pairs(4)))
    module = run.network.get_submodule("decoder.blocks.0.feedforward.up")
    module.register_forward_hook(lambda m, given, output: output.register_hook(lambda g: g * math.inf) and None)
    with pytest.raises(DivergenceError, match=r"first non-finite gradient in decoder\.blocks\.0\.feedforward\.up"):
        run.run()


def test_a_loss_that_rises_and_rises(tmp_path, monkeypatch):
    """All values are finite, but the run diverges: from step 15 on it ascends the gradient."""
    monkeypatch.setattr(divergence, "MIN_STEPS", 10)
    run = loop(tmp_path, Fixed(pairs(4)), steps=600, save_every=2, log_every=1000, evaluate_every=1000)
    real = run.optimizers.step
    run.optimizers.step = lambda factor: real(factor if run.progress.step < 15 else -3.0)
    said = (
        r"the smoothed loss has risen to .* from .*; the largest gradient is in \w+.*Last good checkpoint: step (\d+)"
    )
    with pytest.raises(DivergenceError, match=said) as told:
        run.run()
    assert 15 < run.progress.step < 100
    good = run.progress.lowest_loss_step // 2 * 2
    assert f"Last good checkpoint: step {good} in" in str(told.value)  # later ones were saved while the loss rose
    assert list(state.list_checkpoints(run.run_dir.checkpoints))[-1] == good < run.progress.step - 2
    assert list(run.run_dir.checkpoints.glob("damaged-step-*"))
    found, _ = state.load_last_checkpoint(run.run_dir.checkpoints)
    assert found.progress.step == good
    again = loop(tmp_path, Fixed(pairs(4)), steps=40, log_every=1000, evaluate_every=1000)
    again.restore(found)
    assert again.run().step == 40  # with the correct learning rate


def test_a_state_from_before_the_loss_rose_is_kept_however_long_it_rises(tmp_path, monkeypatch):
    monkeypatch.setattr(divergence, "MIN_STEPS", 10)
    monkeypatch.setattr(divergence, "LOSS_SMOOTHING", 0.5)
    run = loop(tmp_path, Fixed(pairs(4)), steps=60, save_every=5, log_every=1000, evaluate_every=1000)
    real = run.optimizers.step
    run.optimizers.step = lambda factor: real(factor if run.progress.step < 30 else -0.05)  # ascend slowly
    run.run()
    lowest = run.progress.lowest_loss_step
    assert 28 <= lowest <= 34
    assert list(state.list_checkpoints(run.run_dir.checkpoints)) == [lowest // 5 * 5, 55, 60]


def test_progress_is_plain_json(tmp_path):
    run = loop(tmp_path, Fixed(pairs(4)), steps=2)
    run.run()
    place = run.run_dir.checkpoints / "step-00000002"
    assert sorted(path.name for path in place.iterdir()) == ["state.json", "state.safetensors"]
    assert json.loads((place / "state.json").read_text())["progress"]["step"] == 2
