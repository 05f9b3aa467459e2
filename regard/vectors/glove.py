"""GloVe (Pennington et al. 2014): co-occurrence counts, and weighted least squares with AdaGrad.

The loss of a pair of words i, j with co-occurrence x is ½ f(x) (wᵢ · cⱼ + bᵢ + b'ⱼ - log x)², where
f(x) = min(1, (x / x_max)^α).
The vector of a word is wᵢ + cᵢ, as in the original program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.progress import Progress
from regard.vectors.vector_options import GloveOptions
from regard.vectors.word_corpus import WordCorpus
from regard.vectors.word_kernels import GloveJob, address, load_kernels
from regard.vectors.word_vectors import WordVectors

PART_TOKENS = 1 << 20
PART_ENTRIES = 1 << 17

Matrix = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Cooccurrences:
    """Pairs of words with the sum of 1/distance over all places where they are on a line within the window."""

    words: NDArray[np.int32]
    contexts: NDArray[np.int32]
    counts: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.words)


def count_cooccurrences(
    tokens: NDArray[np.int32],
    vocabulary_size: int,
    window: int,
    advance: Callable[[int], None] = lambda _: None,
) -> Cooccurrences:
    """Count all pairs of a text, in both directions. Memory: 16 bytes for each different pair, while counting."""
    keys, sums = np.empty(0, np.int64), np.empty(0, np.float64)
    for part_keys, part_sums in _count_parts(tokens, vocabulary_size, window, advance):
        keys, sums = _sum_by_key(np.concatenate([keys, part_keys]), np.concatenate([sums, part_sums]))
    first, second = (keys // vocabulary_size).astype(np.int32), (keys % vocabulary_size).astype(np.int32)
    # Each unordered pair is counted once as (smaller, larger); the matrix is symmetric. Twice for a word near itself.
    same = first == second
    sums[same] *= 2
    return Cooccurrences(
        np.concatenate([first, second[~same]]),
        np.concatenate([second, first[~same]]),
        np.concatenate([sums, sums[~same]]).astype(np.float32),
    )


def _count_parts(
    tokens: NDArray[np.int32], vocabulary_size: int, window: int, advance: Callable[[int], None]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield the counts of parts of the text; several small ones are summed first, so that few merges are large."""
    pending: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    for start in range(0, len(tokens), PART_TOKENS):
        end = min(start + PART_TOKENS, len(tokens))
        part = np.asarray(tokens[start : end + window]).astype(np.int64)
        lines = np.cumsum(part < 0)
        keys, weights = [], []
        for distance in range(1, window + 1):
            left, right = part[:-distance][: end - start], part[distance:][: end - start]
            same_line = (left >= 0) & (right >= 0) & (lines[:-distance] == lines[distance:])[: end - start]
            low, high = np.minimum(left, right)[same_line], np.maximum(left, right)[same_line]
            keys.append(low * vocabulary_size + high)
            weights.append(np.full(len(low), 1 / distance))
        pending.append(_sum_by_key(np.concatenate(keys), np.concatenate(weights)))
        advance(end - start)
        if len(pending) == 8 or end == len(tokens):
            yield np.concatenate([keys for keys, _ in pending]), np.concatenate([sums for _, sums in pending])
            pending = []


def _sum_by_key(keys: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.add.reduceat(values, starts) if len(starts) else values


@dataclass
class GloveParameters:
    """Vectors with the bias as their last number, and the sums of squared gradients, which begin at one."""

    words: Matrix
    contexts: Matrix
    word_squares: Matrix
    context_squares: Matrix


def initial_parameters(vocabulary_size: int, options: GloveOptions) -> GloveParameters:
    """Return vectors and biases that are uniform in ± 1/(2 dim)."""
    generator = np.random.default_rng(options.seed)
    shape = (vocabulary_size, options.dim + 1)
    words, contexts = ((generator.random(shape, np.float32) - np.float32(0.5)) / options.dim for _ in range(2))
    return GloveParameters(words, contexts, np.ones(shape, np.float32), np.ones(shape, np.float32))


def train_entry(parameters: GloveParameters, word: int, context: int, count: float, options: GloveOptions) -> float:
    """One step of AdaGrad on one pair: the definition of the C loop. Return the loss before the step."""
    w, c = parameters.words[word], parameters.contexts[context]
    difference = w[:-1] @ c[:-1] + w[-1] + c[-1] - np.log(count)
    gradient = min(1.0, (count / options.x_max) ** options.alpha) * difference
    w_gradient, c_gradient = gradient * np.append(c[:-1], 1), gradient * np.append(w[:-1], 1)
    w -= options.lr * w_gradient / np.sqrt(parameters.word_squares[word])
    c -= options.lr * c_gradient / np.sqrt(parameters.context_squares[context])
    parameters.word_squares[word] += w_gradient**2
    parameters.context_squares[context] += c_gradient**2
    return float(0.5 * gradient * difference)


def train_glove(corpus: WordCorpus, options: GloveOptions, note: Callable[[str], None] = lambda _: None) -> WordVectors:
    """Count co-occurrences and train."""
    vocabulary = corpus.vocabulary
    with Progress("counting pairs", total=len(corpus.tokens)) as progress:
        pairs = count_cooccurrences(corpus.tokens, len(vocabulary), options.window, progress.advance)
    note(f"{len(pairs):,} co-occurring pairs")
    parameters = train_pairs(pairs, len(vocabulary), options, note)
    vectors = (parameters.words[:, :-1] + parameters.contexts[:, :-1]).astype(np.float32, copy=False)
    return WordVectors(vocabulary.words, vectors, vocabulary.counts)


def train_pairs(
    pairs: Cooccurrences, vocabulary_size: int, options: GloveOptions, note: Callable[[str], None] = lambda _: None
) -> GloveParameters:
    """Train on all pairs, in another random order in each epoch."""
    parameters = initial_parameters(vocabulary_size, options)
    generator = np.random.default_rng([options.seed, 1])
    with Progress("training", total=options.epochs * len(pairs)) as progress:
        for epoch in range(options.epochs):
            start = time.perf_counter()
            loss = _train_epoch(pairs, generator.permutation(len(pairs)), parameters, options, progress.advance)
            seconds = time.perf_counter() - start
            note(
                f"epoch {epoch + 1} of {options.epochs}: loss {loss / max(1, len(pairs)):.4f}, "
                f"{len(pairs) / seconds:,.0f} pairs per second"
            )
    return parameters


def _train_epoch(
    pairs: Cooccurrences,
    order: NDArray[np.int64],
    parameters: GloveParameters,
    options: GloveOptions,
    advance: Callable[[int], None],
) -> float:
    kernels, _ = load_kernels()
    lock, losses = threading.Lock(), [0.0]

    def train_part(start: int) -> None:
        end = min(start + PART_ENTRIES, len(order))
        if kernels is None:
            loss = sum(
                train_entry(
                    parameters, int(pairs.words[entry]), int(pairs.contexts[entry]), float(pairs.counts[entry]), options
                )
                for entry in order[start:end]
            )
        else:
            loss = _train_native(kernels, pairs, order, parameters, options, start, end)
        with lock:
            losses[0] += loss
            advance(end - start)

    with ThreadPoolExecutor(options.threads) as pool:
        list(pool.map(train_part, range(0, len(order), PART_ENTRIES)))
    return losses[0]


def _train_native(
    kernels: Any,
    pairs: Cooccurrences,
    order: NDArray[np.int64],
    parameters: GloveParameters,
    options: GloveOptions,
    start: int,
    end: int,
) -> float:
    job = GloveJob(
        words=address(pairs.words),
        contexts=address(pairs.contexts),
        counts=address(pairs.counts),
        order=address(order),
        start=start,
        end=end,
        dim=options.dim,
        stride=parameters.words.shape[1],
        word_vectors=address(parameters.words),
        context_vectors=address(parameters.contexts),
        word_squares=address(parameters.word_squares),
        context_squares=address(parameters.context_squares),
        lr=options.lr,
        x_max=options.x_max,
        alpha=options.alpha,
    )
    if kernels.train_glove(job):
        raise ValueError("the vectors contain NaN or infinity: use a smaller learning rate (lr)")
    return float(job.loss)
