"""Training of word2vec with several threads, which change the vectors without locks (Hogwild, Niu et al. 2011).

The text is divided into parts of about equal size, whatever its lines are; each thread takes the next part when it is
done with one, so no thread waits for another, and lines of any length are trained on whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.vectors.char_ngrams import word_rows
from regard.vectors.skipgram_cbow import LossSum, Word2VecTables, epoch_key, train_part
from regard.vectors.vector_options import Kind, Word2VecOptions
from regard.vectors.word_corpus import WordCorpus
from regard.vectors.word_kernels import Word2VecJob, address, aligned_rows, load_kernels
from regard.vectors.word_vocabulary import (
    alias_table,
    as_uint32,
    huffman_paths,
    keep_probabilities,
    negative_probabilities,
)

PART_TOKENS = 1 << 15


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """One pass over the text."""

    epoch: int
    """Number of the epoch, from 1."""
    words_per_second: float
    """Words of the text per second, those included that subsampling drops."""
    loss: float
    """Mean loss of an example (of one in 64 words)."""


def make_tables(corpus: WordCorpus, options: Word2VecOptions) -> Word2VecTables:
    """Compute what training reads: subsampling, negative samples, Huffman paths, n-grams."""
    counts = corpus.vocabulary.counts
    thresholds, alias = alias_table(negative_probabilities(counts))
    bags = word_rows(corpus.vocabulary.words, options.ngrams) if options.ngrams else (None, None)
    return Word2VecTables(
        tokens=corpus.tokens,
        keep=as_uint32(keep_probabilities(counts, options.sample)),
        alias_threshold=thresholds,
        alias=alias,
        paths=huffman_paths(counts) if options.hierarchical_softmax else None,
        bag_starts=bags[0],
        bag_rows=bags[1],
    )


def initial_matrices(vocabulary_size: int, options: Word2VecOptions) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the input rows (uniform in ± 1/(2 dim)) and the output rows (zero), padded and aligned.

    With both hierarchical softmax and negative sampling there are two sets of output rows: nodes, then words.
    """
    rows = vocabulary_size + (options.ngrams.buckets if options.ngrams else 0)
    inputs = aligned_rows(rows, options.dim)
    generator = np.random.default_rng(options.seed)
    for start in range(0, rows, 1 << 16):
        part = inputs[start : start + (1 << 16), : options.dim]
        part[:] = (generator.random(part.shape, np.float32) - 0.5) / options.dim
    sets = bool(options.negative) + options.hierarchical_softmax
    return inputs, aligned_rows(vocabulary_size * sets, options.dim)


def train_word2vec(
    corpus: WordCorpus,
    options: Word2VecOptions,
    report: Callable[[EpochReport], None] = lambda _: None,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[NDArray[np.float32], Word2VecTables]:
    """Train, and return the input rows (padded) with the tables. `advance` is called with numbers of words."""
    tables = make_tables(corpus, options)
    inputs, outputs = initial_matrices(len(corpus.vocabulary), options)
    kernels, _ = load_kernels()
    size = len(corpus.tokens)
    bounds = [(start, min(start + PART_TOKENS, size)) for start in range(0, size, PART_TOKENS)]
    for epoch in range(options.epochs):
        start = time.perf_counter()
        key, steps = epoch_key(options.seed, epoch), (float(epoch * size), float(options.epochs * size))

        def train(part: tuple[int, int], key: int = key, steps: tuple[float, float] = steps) -> LossSum:
            if kernels is None:
                return train_part(tables, options, inputs, outputs, key, part, steps)
            return _train_native(kernels, tables, options, (inputs, outputs), key, part, steps)

        loss = _run_parts(train, bounds, options.threads, advance)
        report(
            EpochReport(
                epoch=epoch + 1,
                words_per_second=corpus.vocabulary.total / (time.perf_counter() - start),
                loss=loss.total / max(1, loss.count),
            )
        )
    return inputs, tables


def _run_parts(
    train: Callable[[tuple[int, int]], LossSum],
    bounds: list[tuple[int, int]],
    threads: int,
    advance: Callable[[int], None],
) -> LossSum:
    """Train on all parts, in order with one thread."""
    total, lock, remaining, stopped = LossSum(), threading.Lock(), iter(bounds), threading.Event()

    def work() -> None:
        while not stopped.is_set():
            with lock:
                part = next(remaining, None)
            if part is None:
                return
            loss = train(part)
            with lock:
                total.total, total.count = total.total + loss.total, total.count + loss.count
                advance(part[1] - part[0])

    if threads == 1:
        work()
        return total
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work) for _ in range(threads)]
        try:
            for future in futures:
                future.result()
        finally:  # after an error or Ctrl-C the other threads stop at their next part
            stopped.set()
    return total


def _train_native(
    kernels: Any,
    tables: Word2VecTables,
    options: Word2VecOptions,
    matrices: tuple[NDArray[np.float32], NDArray[np.float32]],
    key: int,
    part: tuple[int, int],
    steps: tuple[float, float],
) -> LossSum:
    inputs, outputs = matrices
    paths = tables.paths
    job = Word2VecJob(
        tokens=address(tables.tokens),
        start=part[0],
        end=part[1],
        num_tokens=len(tables.tokens),
        input=address(inputs),
        output=address(outputs),
        stride=inputs.shape[1],
        window=options.window,
        negative=options.negative,
        is_cbow=options.kind is Kind.CBOW,
        keep=address(tables.keep),
        alias_threshold=address(tables.alias_threshold),
        alias=address(tables.alias),
        vocabulary=len(tables.keep),
        path_starts=address(paths.starts) if paths else None,
        path_nodes=address(paths.nodes) if paths else None,
        path_labels=address(paths.labels) if paths else None,
        bag_starts=address(tables.bag_starts),
        bag_rows=address(tables.bag_rows),
        key=key,
        lr=options.lr,
        min_lr=options.min_lr,
        first_step=steps[0],
        total_steps=steps[1],
    )
    if kernels.train_word2vec(job):
        raise MemoryError("not enough memory for word2vec")
    return LossSum(job.loss, job.loss_count)
