"""Keys of random draws: known answers, uniform numbers, independence of neighbours in each part of the key."""

import math

import numpy as np
import pytest
import torch

from regard.data.random_keys import (
    GOLDEN,
    fold,
    from_tensor,
    mix,
    second_copy,
    sequence_keys,
    site,
    to_tensor,
    token_keys,
    uniforms,
)  # fmt: skip
from regard.transformer.batch_layout import BatchLayout

CELLS = 64


def chi_squared(counts, expected=None):
    """Standard deviations between the chi-squared statistic and its mean, by Wilson and Hilferty's approximation."""
    counts = np.asarray(counts, float).ravel()
    expected = counts.mean() if expected is None else expected
    degrees = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    return ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))


def test_mix_is_splitmix64():
    """The first outputs of SplitMix64 with seed 1234567, as published with Vigna's xoshiro generators."""
    state = (np.uint64(1234567) + np.arange(1, 4, dtype=np.uint64) * np.uint64(GOLDEN)).astype(np.uint64)
    assert mix(state).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def some_uniforms(**parts):
    """Uniform numbers whose keys differ in one part."""
    ones = np.zeros(1 << 16, np.int64)
    values = {name: np.arange(1 << 16) if name in parts else ones for name in ("row", "start", "position")}
    keys = sequence_keys(parts.get("seed", 1), 0, values["row"], values["start"])
    return uniforms(to_tensor(fold(keys, values["position"])), parts.get("name", "a")).numpy()


@pytest.mark.parametrize("part", ["row", "start", "position"])
def test_numbers_are_uniform_and_neighbours_independent(part):
    found = some_uniforms(**{part: True})
    assert 0 <= found.min() <= found.max() < 1
    assert abs(chi_squared(np.histogram(found, CELLS, (0, 1))[0])) < 4
    for shift in (1, 2, 16, 4096):
        pairs = np.histogram2d(found[:-shift], found[shift:], bins=16, range=[[0, 1], [0, 1]])[0]
        assert abs(chi_squared(pairs)) < 4, shift


def test_seeds_epochs_copies_and_sites_are_independent():
    rows = np.arange(1 << 16)
    first = uniforms(to_tensor(sequence_keys(1, 0, rows)), "a").numpy()
    others = [
        uniforms(to_tensor(sequence_keys(2, 0, rows)), "a"),
        uniforms(to_tensor(sequence_keys(1, 1, rows)), "a"),
        uniforms(second_copy(to_tensor(sequence_keys(1, 0, rows))), "a"),
        uniforms(to_tensor(sequence_keys(1, 0, rows)), "b"),
        uniforms(to_tensor(sequence_keys(1, 0, rows, rows)), "a"),
    ]
    for other in others:
        pairs = np.histogram2d(first, other.numpy(), bins=16, range=[[0, 1], [0, 1]])[0]
        assert abs(chi_squared(pairs)) < 4


def test_no_key_occurs_twice():
    keys = np.concatenate([sequence_keys(7, epoch, np.arange(50_000), starts) for epoch in range(4)
                           for starts in (None, np.full(50_000, 512))])  # fmt: skip
    assert len(np.unique(keys)) == len(keys)
    assert sequence_keys(-1, 0, np.arange(2)).dtype == np.uint64, "any seed"


def test_the_key_of_a_token_does_not_depend_on_the_batch():
    keys = to_tensor(sequence_keys(3, 0, np.arange(4)))
    layout = BatchLayout.of([3, 1, 4, 3]).with_sequence_keys(keys)
    parts = torch.split(token_keys(layout), [3, 1, 4, 3])
    for order in ([0], [3, 1], [2, 0, 3, 1]):
        lengths = [layout.lengths[row] for row in order]
        again = token_keys(BatchLayout.of(lengths).with_sequence_keys(keys[order]))
        for row, part in zip(order, torch.split(again, lengths), strict=True):
            assert torch.equal(part, parts[row])
    assert token_keys(BatchLayout.of([3, 1])) is None
    assert from_tensor(keys).dtype == np.uint64
    assert site("a") != site("b")
