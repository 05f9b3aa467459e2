"""The loss is per token over an optimizer step, for any gradient accumulation and any batch shapes."""

import pytest
from unit.training.tiny_data import batch, ids
from unit.training.tiny_loop import Fixed, gradients, largest_difference, loop, pairs, part

from regard.transformer.network import build


def test_the_loss_is_per_token_however_an_update_is_cut(tmp_path):
    """One batch; two parts with unequal counts; five parts: equal gradients within 1e-12, equal loss."""
    given = pairs(10)
    whole = loop(tmp_path / "1", Fixed(given))
    halves = loop(
        tmp_path / "2", Fixed(part(given, 0, 1, 2), part(given, *range(3, 10))), gradient_accumulation_steps=2
    )
    pieces = loop(
        tmp_path / "5", Fixed(*(part(given, i, i + 1) for i in range(0, 10, 2))), gradient_accumulation_steps=5
    )
    counts = [len(row) for row in given[1]]
    assert sum(counts[:3]) != sum(counts[3:])
    found = [run.update(run.batches.iter_from(0, 0)) for run in (whole, halves, pieces)]
    assert [count for _, count, _ in found] == [sum(counts)] * 3
    for (loss, _, norm), run in zip(found, (whole, halves, pieces), strict=True):
        assert loss == pytest.approx(found[0][0], rel=1e-12)
        assert norm == pytest.approx(found[0][2], rel=1e-11)
        assert largest_difference(gradients(whole), gradients(run)) < 1e-12


def test_a_mean_of_means_would_be_another_gradient(tmp_path):
    """The test above could fail: a mean of means, usual until 2024, gives another gradient on the same sequences."""
    given = pairs(10)
    whole = loop(tmp_path / "1", Fixed(given))
    whole.update(whole.batches.iter_from(0, 0))
    network, objective = whole.network, whole.objective
    total = {}
    for places in (range(3), range(3, 10)):
        source, target = part(given, *places)
        network.zero_grad()
        network.load_state_dict(build(network.config, seed=3).double().state_dict())
        loss = objective.loss(network, batch(source=ids(*source), target=ids(*target)))
        (loss.sum / loss.count / 2).backward()
        for name, value in gradients(whole).items():
            total[name] = total.get(name, 0) + value
    again = loop(tmp_path / "2", Fixed(given))
    again.update(again.batches.iter_from(0, 0))
    assert largest_difference(gradients(again), total) > 1e-3
