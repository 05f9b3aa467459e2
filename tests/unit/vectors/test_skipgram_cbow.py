"""The examples of word2vec against autograd, the C loop against numpy, and the samplers against their distributions."""

import itertools

import numpy as np
import pytest
import torch

from regard.vectors import hogwild
from regard.vectors.hogwild import initial_matrices, make_tables, train_word2vec
from regard.vectors.skipgram_cbow import (
    LINE_END,
    Random,
    choose_rows,
    draw_negative,
    epoch_key,
    hierarchical_log_probability,
    train_example,
    train_part,
)
from regard.vectors.vector_options import CharacterNgrams, Kind, Word2VecOptions
from regard.vectors.word_corpus import WordCorpus
from regard.vectors.word_kernels import load_kernels
from regard.vectors.word_vocabulary import WordVocabulary, huffman_paths, negative_probabilities

needs_compiler = pytest.mark.skipif(load_kernels()[0] is None, reason=f"no C loop: {load_kernels()[1]}")


def make_corpus(vocabulary=40, words=3000, seed=0, line=17):
    """Words with a skewed distribution, in lines of different length."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(words, (p := 1 / np.arange(1, vocabulary + 1)) / p.sum())
    text = rng.permutation(np.repeat(np.arange(vocabulary), np.maximum(counts, 1)))
    order = np.argsort(-np.bincount(text), kind="stable")
    text = np.argsort(order)[text]
    tokens = []
    for word in text:
        tokens.append(word)
        if rng.random() < 1 / line:
            tokens.append(LINE_END)
    vocabulary = WordVocabulary([f"w{index}é" for index in range(vocabulary)], np.bincount(text))
    return WordCorpus(vocabulary, np.array([*tokens, LINE_END], np.int32))


OPTIONS = {
    "skipgram": dict(),
    "cbow": dict(kind=Kind.CBOW),
    "hierarchical": dict(negative=0, hierarchical_softmax=True),
    "cbow-hierarchical": dict(kind=Kind.CBOW, negative=0, hierarchical_softmax=True),
    "both": dict(hierarchical_softmax=True, negative=3),
    "ngrams": dict(ngrams=CharacterNgrams(shortest=2, longest=4, buckets=50)),
    "cbow-ngrams": dict(kind=Kind.CBOW, ngrams=CharacterNgrams(shortest=2, longest=4, buckets=50), negative=7),
}


@pytest.mark.parametrize("bag_size", [1, 4])
@pytest.mark.parametrize("labels", [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]], ids=["negative", "path"])
def test_step_is_the_gradient_of_the_loss(bag_size, labels):
    """Against autograd in float64. Each row of a bag moves by the gradient of the mean, as documented."""
    rng = np.random.default_rng(3)
    inputs, outputs = rng.standard_normal((9, 5)), rng.standard_normal((11, 5))
    bag, rows, lr = rng.permutation(9)[:bag_size].tolist(), [2, 7, 5, 10], 0.3
    hidden = torch.tensor(inputs[bag].mean(axis=0), requires_grad=True)
    theirs = torch.tensor(outputs, requires_grad=True)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        theirs[rows] @ hidden, torch.tensor(labels, dtype=torch.float64), reduction="sum"
    )
    loss.backward()
    expected = inputs.copy()
    expected[bag] -= lr * hidden.grad.numpy()
    ours_in, ours_out = inputs.copy(), outputs.copy()
    assert train_example(ours_in, ours_out, bag, rows, labels, lr) == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(ours_in, expected, rtol=1e-12)
    np.testing.assert_allclose(ours_out, outputs - lr * theirs.grad.numpy(), rtol=1e-12)


@needs_compiler
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dim", [20, 100])
def test_c_loop_computes_what_numpy_does(name, dim, monkeypatch):
    """The same random numbers, the same steps: parts of the text, subsampling, window, learning rate, loss."""
    corpus = make_corpus(words=250 if "ngrams" in name else 1000)
    options = Word2VecOptions(dim=dim, window=3, sample=0.02, epochs=1, lr=0.2, **OPTIONS[name])
    monkeypatch.setattr(hogwild, "PART_TOKENS", 101)
    reports = []
    ours, tables = train_word2vec(corpus, options, reports.append)
    inputs, outputs = initial_matrices(len(corpus.vocabulary), options)
    start = inputs.copy()
    size = len(corpus.tokens)
    loss = train_part(tables, options, inputs, outputs, epoch_key(options.seed, 0), (0, size), (0.0, float(size)))
    assert np.abs(ours - start).max() > 0.1
    np.testing.assert_allclose(ours, inputs, atol=2e-5 * np.abs(inputs).max())
    assert reports[0].loss == pytest.approx(loss.total / loss.count, rel=1e-5)


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_compiler), False])
def test_result_does_not_depend_on_how_the_text_is_divided(native, monkeypatch):
    """Windows and subsampling look across the borders of parts: long lines are not cut."""
    corpus = make_corpus(words=600, line=10**9)
    assert (corpus.tokens[:-1] != LINE_END).all()
    options = Word2VecOptions(dim=8, window=4, sample=0.02, epochs=1)
    if not native:
        monkeypatch.setattr(hogwild, "load_kernels", lambda: (None, "test"))
    results = []
    for part in (7, 64, 10**6):
        monkeypatch.setattr(hogwild, "PART_TOKENS", part)
        results.append(train_word2vec(corpus, options)[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@needs_compiler
def test_one_thread_is_deterministic_and_the_seed_matters():
    corpus = make_corpus()
    first, second, other = (
        train_word2vec(corpus, Word2VecOptions(dim=16, epochs=2, seed=seed))[0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 0.01


def test_hierarchical_softmax_sums_to_one():
    rng = np.random.default_rng(4)
    counts = np.sort(rng.integers(1, 500, 37))[::-1]
    paths = huffman_paths(counts)
    hidden, outputs = rng.standard_normal(6), rng.standard_normal((36, 6))
    total = sum(np.exp(hierarchical_log_probability(hidden, outputs, paths, word)) for word in range(37))
    assert total == pytest.approx(1, abs=1e-12)


def test_huffman_paths_have_the_smallest_mean_length():
    """The cost of a Huffman tree is the sum of the counts of its inner nodes."""
    import heapq

    counts = np.array([50, 20, 11, 9, 5, 3, 1, 1], np.int64)
    heap = [int(count) for count in counts]
    heapq.heapify(heap)
    cost = 0
    while len(heap) > 1:
        node = heapq.heappop(heap) + heapq.heappop(heap)
        cost += node
        heapq.heappush(heap, node)
    paths = huffman_paths(counts)
    assert (np.diff(paths.starts) * counts).sum() == cost
    codes = ["".join(str(int(label)) for _, label in paths.path(word)) for word in range(8)]
    assert not [pair for pair in itertools.permutations(codes, 2) if pair[1].startswith(pair[0])]
    assert all(next(iter(paths.path(word)))[0] == 0 for word in range(8))


def chi_squared(observed, probabilities):
    """The statistic, and the limit that it exceeds once in a million samples (Wilson and Hilferty)."""
    expected = probabilities * observed.sum()
    assert expected.min() > 5
    freedom = len(observed) - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 4.753 * np.sqrt(2 / (9 * freedom))) ** 3
    return ((observed - expected) ** 2 / expected).sum(), limit


def test_negative_samples_have_their_distribution():
    tables = make_tables(corpus := make_corpus(), Word2VecOptions())
    state = Random(5)
    draws = np.bincount([draw_negative(tables, state) for _ in range(50_000)], minlength=40)
    statistic, limit = chi_squared(draws, negative_probabilities(corpus.vocabulary.counts))
    assert statistic < limit
    wrong, limit = chi_squared(draws, corpus.vocabulary.counts / corpus.vocabulary.counts.sum())
    assert wrong > limit


def test_a_negative_sample_is_never_the_word_itself():
    options = Word2VecOptions()
    tables = make_tables(make_corpus(vocabulary=3), options)
    for seed in range(100):
        rows, labels = choose_rows(tables, options, 1, Random(seed))
        assert rows[0] == 1
        assert 1 not in rows[1:]
        assert labels == [1.0] + [0.0] * (len(rows) - 1)


def test_subsampling_keeps_words_at_their_rate():
    """Counted in the text that reaches training, against (√(f/t) + 1) · t/f."""
    from regard.vectors.skipgram_cbow import _kept_words
    from regard.vectors.word_vocabulary import keep_probabilities

    corpus = make_corpus(words=40_000)
    tables = make_tables(corpus, Word2VecOptions(sample=0.01))
    words, _, first, end = _kept_words(tables, 5, epoch_key(1, 0), 0, len(corpus.tokens))
    kept = np.bincount([word for word in words[first:end] if word != LINE_END], minlength=40)
    counts = corpus.vocabulary.counts
    frequency = counts / counts.sum()
    probability = np.minimum(1, (np.sqrt(frequency / 0.01) + 1) * 0.01 / frequency)
    np.testing.assert_allclose(keep_probabilities(counts, 0.01), probability)
    dropped = probability < 1
    variance = counts * probability * (1 - probability)
    assert 5 < dropped.sum() < 40
    assert (kept[~dropped] == counts[~dropped]).all()
    deviations = (kept - counts * probability)[dropped] / np.sqrt(variance[dropped])
    assert (deviations**2).sum() < chi_squared(
        np.full(dropped.sum() + 1, 10), np.full(dropped.sum() + 1, 1 / (dropped.sum() + 1))
    )[1]


@needs_compiler
def test_windows_are_uniform_and_stop_at_line_ends():
    """Distances of the pairs that are trained: distance d occurs if the drawn window is at least d."""
    from regard.vectors.skipgram_cbow import _position_state

    draws = np.bincount([Random(_position_state(7, position)).next() % 5 for position in range(20_000)])
    statistic, limit = chi_squared(draws, np.full(5, 0.2))
    assert statistic < limit
