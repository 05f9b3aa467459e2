"""GloVe: counts against a brute-force count, the step against autograd, the C loop against numpy."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.vectors import glove
from regard.vectors.glove import (
    Cooccurrences,
    GloveParameters,
    count_cooccurrences,
    initial_parameters,
    train_entry,
    train_pairs,
)
from regard.vectors.vector_options import GloveOptions
from regard.vectors.word_kernels import load_kernels

needs_compiler = pytest.mark.skipif(load_kernels()[0] is None, reason=f"no C loop: {load_kernels()[1]}")


def brute_force(tokens, window):
    counts = defaultdict(float)
    for place, word in enumerate(tokens):
        for distance in range(1, window + 1):
            if place < distance or -1 in tokens[place - distance : place + 1]:
                break
            other = tokens[place - distance]
            counts[word, other] += 1 / distance
            counts[other, word] += 1 / distance
    return counts


@given(tokens=st.lists(st.integers(-1, 4), max_size=40), window=st.integers(1, 5), part=st.sampled_from([3, 7, 1000]))
def test_counts_are_those_of_a_brute_force_count(tokens, window, part):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glove, "PART_TOKENS", part)
        pairs = count_cooccurrences(np.array(tokens, np.int32), 5, window)
    expected = brute_force(tokens, window)
    found = {(i, j): x for i, j, x in zip(pairs.words.tolist(), pairs.contexts.tolist(), pairs.counts, strict=True)}
    assert len(found) == len(pairs)
    assert found.keys() == expected.keys()
    for pair, count in expected.items():
        assert found[pair] == pytest.approx(count, rel=1e-6)


@pytest.mark.parametrize("count", [3.0, 250.0])
def test_step_is_adagrad_on_the_loss(count):
    """Against autograd and torch's own AdaGrad in float64, for counts below and above x_max."""
    rng = np.random.default_rng(1)
    options = GloveOptions(dim=5, x_max=100.0, lr=0.2)
    parameters = GloveParameters(
        *(rng.standard_normal((4, 6)) for _ in range(2)), *(rng.uniform(1, 3, (4, 6)) for _ in range(2))
    )
    before = [array.copy() for array in vars(parameters).values()]
    w = torch.tensor(before[0][1], requires_grad=True)
    c = torch.tensor(before[1][2], requires_grad=True)
    difference = w[:5] @ c[:5] + w[5] + c[5] - np.log(count)
    loss = 0.5 * min(1.0, (count / 100) ** 0.75) * difference**2
    loss.backward()
    assert train_entry(parameters, 1, 2, count, options) == pytest.approx(loss.item(), rel=1e-12)
    for tensor, values, squares, row, old in (
        (w, parameters.words, parameters.word_squares, 1, before[0]),
        (c, parameters.contexts, parameters.context_squares, 2, before[1]),
    ):
        old_squares = before[2][1] if row == 1 else before[3][2]
        gradient = tensor.grad.numpy()
        np.testing.assert_allclose(values[row], old[row] - 0.2 * gradient / np.sqrt(old_squares), rtol=1e-12)
        np.testing.assert_allclose(squares[row], old_squares + gradient**2, rtol=1e-12)
        others = [index for index in range(4) if index != row]
        np.testing.assert_array_equal(values[others], old[others])


def random_pairs(size=300, vocabulary=20):
    rng = np.random.default_rng(2)
    return Cooccurrences(
        rng.integers(0, vocabulary, size).astype(np.int32),
        rng.integers(0, vocabulary, size).astype(np.int32),
        rng.uniform(0.1, 200, size).astype(np.float32),
    )


@needs_compiler
@pytest.mark.parametrize("dim", [5, 32])
def test_c_loop_computes_what_numpy_does(dim, monkeypatch):
    options = GloveOptions(dim=dim, epochs=2)
    monkeypatch.setattr(glove, "PART_ENTRIES", 64)
    ours = train_pairs(random_pairs(), 20, options)
    monkeypatch.setattr(glove, "load_kernels", lambda: (None, "test"))
    expected = train_pairs(random_pairs(), 20, options)
    start = initial_parameters(20, options)
    assert np.abs(ours.words - start.words).max() > 0.1
    for name in vars(ours):
        np.testing.assert_allclose(getattr(ours, name), getattr(expected, name), rtol=2e-4, atol=2e-5)


@needs_compiler
def test_the_products_fit_the_logarithms():
    """Pairs that can be fitted exactly are: the loss falls towards zero."""
    pairs = random_pairs(60)
    keys = pairs.words * 20 + pairs.contexts
    unique = np.unique(keys, return_index=True)[1]
    pairs = Cooccurrences(pairs.words[unique], pairs.contexts[unique], pairs.counts[unique])
    result = train_pairs(pairs, 20, GloveOptions(dim=30, epochs=400, x_max=1.0))
    fitted = (result.words[pairs.words, :-1] * result.contexts[pairs.contexts, :-1]).sum(axis=1)
    fitted += result.words[pairs.words, -1] + result.contexts[pairs.contexts, -1]
    weights = np.minimum(1, pairs.counts) ** 0.75
    assert np.abs(weights * (fitted - np.log(pairs.counts))).max() < 0.05
