"""The fast generator must still be random: drop rate, and independence of neighbours, rows, calls and seeds."""

import math

import pytest
import torch
from unit.native.no_native import without_native_library

from regard.native.library import available
from regard.training.modules.dropout import Dropout


@pytest.fixture(autouse=True, params=["compiled", "by numpy"])
def way(request, monkeypatch):
    """With and without the native kernels."""
    if request.param != "compiled":
        without_native_library(monkeypatch)
    elif not available():
        pytest.skip("the native library is not available")


def zeros(rate, shape, seed=0):
    torch.manual_seed(seed)
    module = Dropout(rate).train()
    return module(torch.ones(shape)) == 0


def away(found, expected, count):
    """How many standard deviations a share of `count` draws differs from the expected share."""
    return abs(found - expected) / math.sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_as_many_values_are_dropped_as_asked_for(rate):
    dropped = zeros(rate, (1000, 1000))
    assert away(dropped.float().mean().item(), round(rate * 65536) / 65536, dropped.numel()) < 4


@pytest.mark.parametrize("rate", [0.1, 0.3])
@pytest.mark.parametrize("shift", [1, 2, 3, 4, 8, 64, 127, 128, 1000])
def test_neighbours_are_independent(rate, shift):
    dropped = zeros(rate, (1 << 20,)).flatten()
    both = (dropped[:-shift] & dropped[shift:]).float().mean().item()
    assert away(both, (round(rate * 65536) / 65536) ** 2, dropped.numel() - shift) < 4.5


def test_calls_steps_and_seeds_are_independent():
    torch.manual_seed(7)
    module, ones = Dropout(0.25).train(), torch.ones(1 << 18)
    calls = [module(ones) != 0 for _ in range(4)]
    torch.manual_seed(8)
    calls += [module(ones) != 0 for _ in range(4)]
    for number, one in enumerate(calls):
        for other in calls[:number]:
            both = (~one & ~other).float().mean().item()
            assert away(both, 1 / 16, one.numel()) < 4.5


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 13])
def test_any_shape(count):
    assert Dropout(0.5).train()(torch.ones(count, 3)).shape == (count, 3)


def test_the_same_seed_drops_the_same_and_the_next_call_does_not():
    assert torch.equal(zeros(0.3, (64, 64), seed=1), zeros(0.3, (64, 64), seed=1))
    assert not torch.equal(zeros(0.3, (64, 64), seed=1), zeros(0.3, (64, 64), seed=2))
    torch.manual_seed(0)
    module = Dropout(0.3).train()
    assert not torch.equal(module(torch.ones(64, 64)), module(torch.ones(64, 64)))


def test_the_expected_value_stays_and_gradients_follow():
    torch.manual_seed(3)
    x = torch.randn(50, 40, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.25).train()(x)
    scale = 65536 / (65536 - 16384)
    stayed = y != 0
    torch.testing.assert_close(y[stayed], x[stayed] * scale)
    (gradient,) = torch.autograd.grad((y * 2).sum(), x)
    torch.testing.assert_close(gradient, stayed.double() * 2 * scale)


def test_nothing_is_dropped_outside_training_or_at_rate_zero():
    x = torch.randn(5, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert not Dropout(1.0).train()(x).any()
