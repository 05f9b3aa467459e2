import pytest
import torch
from unit.training.recipes import train
from unit.training.tiny_data import write_recipe

from regard.training.run import state
from regard.training.run.checkpoint_averaging import average_checkpoints
from regard.training.run.run_dir import RunDir, read_metrics
from regard.training.run.state import TrainingProgress


def test_the_mean_is_the_mean(tmp_path):
    values = [torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    places = [
        state.save_checkpoint(
            tmp_path, TrainingProgress(step=step), {"parameter/a": value, "optimizer/a": value.clone()}, {}
        )
        for step, value in enumerate(values)
    ]
    found = average_checkpoints(places)
    assert list(found) == ["a"]
    torch.testing.assert_close(found["a"], sum(value.double() for value in values).div(3).float(), rtol=0, atol=0)
    assert torch.equal(average_checkpoints(places[:1])["a"], values[0])


def test_the_mean_is_of_what_was_measured(tmp_path):
    """A run with an EMA is evaluated and ranked with it."""
    raw, smooth = torch.zeros(2), [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])]
    places = [
        state.save_checkpoint(
            tmp_path,
            TrainingProgress(step=step),
            {"parameter/a": raw, "parameter/frozen": raw.clone(), "ema/a": value},
            {},
        )
        for step, value in enumerate(smooth)
    ]
    found = average_checkpoints(places)
    assert found["a"].tolist() == [2.0, 4.0]
    assert found["frozen"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("kind", "expected"), [("last", [2, 3, 4]), ("best", None)])
def test_a_run_tries_the_mean_of_its_states(tmp_path, kind, expected):
    change = {"training.average_checkpoints": {"kind": kind, "count": 3}, "training.steps": 4}
    change |= {"training.evaluate_every": 1, "training.save_every": 1, "training.keep_checkpoints": 1}
    best = train(write_recipe(tmp_path), change, output=tmp_path / "run")
    lines = read_metrics(RunDir(tmp_path / "run").metrics)
    tried = lines[-1]
    losses = {line["step"]: line["valid_loss"] for line in lines[:-1] if "valid_loss" in line}
    assert tried["averaged_steps"] == (expected or sorted(sorted(losses, key=losses.get)[:3]))
    weights = torch.cat([value.flatten() for value in _parameters(best).values()])
    places = state.list_checkpoints(tmp_path / "run" / "checkpoints")
    from_states = average_checkpoints([places[step] for step in tried["averaged_steps"]])
    averaged = sorted(from_states) and torch.cat([value.flatten() for value in from_states.values()])
    is_mean = weights.sort().values.allclose(averaged.sort().values)
    assert is_mean == (tried["valid_loss"] < min(losses.values()))


def _parameters(best):
    import regard

    return {name: value.detach() for name, value in regard.load(best).network.named_parameters()}
