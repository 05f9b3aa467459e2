"""Word2vec: what the C loop computes, written in numpy.

One example is a bag of input rows and a list of output rows with labels. The hidden vector h is the mean of the bag,
and the loss of the example is the sum over the output rows of -log σ(h · row) for label 1 and -log σ(-h · row) for
label 0. `train_example` makes one step of gradient descent on it, with two properties of the original program: each
row of the bag moves by the gradient of h (the gradient of the row itself would be divided by the size of the bag), and
an output row that is drawn twice moves twice. Scores are computed for six output rows at a time, then these are moved.

Skip-gram has a bag of one word, CBOW one of all words in the window; with character n-grams, a word stands for its own
row and those of its n-grams. The output rows are the centre word and negative samples, or the inner nodes of the
Huffman tree (hierarchical softmax), or both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.vectors.vector_options import Kind, Word2VecOptions
from regard.vectors.word_vocabulary import ALWAYS, HuffmanPaths

LINE_END = -1
LOSS_EVERY = 64
ROWS_AT_ONCE = 6
MASK = 2**64 - 1

Matrix = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Word2VecTables:
    """Everything that training reads and does not change."""

    tokens: NDArray[np.int32]
    """The text: word indices, and `LINE_END` after each line."""
    keep: NDArray[np.uint32]
    """By word: probability to survive subsampling, as a fraction of 2^32."""
    alias_threshold: NDArray[np.uint32]
    alias: NDArray[np.int32]
    """The table of negative samples."""
    paths: HuffmanPaths | None
    """Hierarchical softmax."""
    bag_starts: NDArray[np.int64] | None
    bag_rows: NDArray[np.int32] | None
    """Character n-grams: the input rows of word w are bag_rows[bag_starts[w] : bag_starts[w + 1]]."""


@dataclass
class LossSum:
    """The sum of the losses of a sample of examples."""

    total: float = 0.0
    count: int = 0


def train_example(
    inputs: Matrix, outputs: Matrix, bag: list[int], rows: list[int], labels: list[float], lr: float
) -> float:
    """One step on one example. Return its loss before the step."""
    hidden = inputs[bag].mean(axis=0)
    error, loss = np.zeros_like(hidden), 0.0
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some, some_labels = rows[start : start + ROWS_AT_ONCE], np.array(labels[start : start + ROWS_AT_ONCE])
        scores = outputs[some] @ hidden
        gradients = (some_labels - 1 / (1 + np.exp(-scores))) * lr
        for row, gradient in zip(some, gradients.astype(inputs.dtype), strict=True):
            error += gradient * outputs[row]
            outputs[row] += gradient * hidden
        loss += float(np.logaddexp(0, np.where(some_labels > 0.5, -scores, scores)).sum())
    np.add.at(inputs, bag, error)
    return loss


def train_part(
    tables: Word2VecTables,
    options: Word2VecOptions,
    inputs: Matrix,
    outputs: Matrix,
    key: int,
    bounds: tuple[int, int],
    steps: tuple[float, float],
) -> LossSum:
    """Train on the words of tokens[start:end]; `steps` are the words trained before this epoch, and in total."""
    words, positions, first, end = _kept_words(tables, options.window, key, *bounds)
    loss = LossSum()
    for center in range(first, end):
        if words[center] == LINE_END:
            continue
        position = positions[center]
        state = Random(_position_state(key, position))
        window = options.window - state.next() % options.window
        left, right = (_until_line_end(words, center, step, window) for step in (-1, 1))
        neighbours = [*[*left][::-1], *right]
        if not neighbours:
            continue
        progress = min(1.0, (steps[0] + (position & ~1023)) / steps[1])
        lr = options.lr - (options.lr - options.min_lr) * progress
        bags = [neighbours] if options.kind is Kind.CBOW else [[neighbour] for neighbour in neighbours]
        for bag in bags:
            rows, labels = choose_rows(tables, options, words[center], state)
            input_rows = [row for word in bag for row in _input_rows(tables, word)]
            value = train_example(inputs, outputs, input_rows, rows, labels, lr)
            if position % LOSS_EVERY == 0:
                loss.total, loss.count = loss.total + value, loss.count + 1
    return loss


def choose_rows(
    tables: Word2VecTables, options: Word2VecOptions, word: int, state: Random
) -> tuple[list[int], list[float]]:
    """Return the output rows of a word, with labels: the nodes of its path, then itself and negative samples.

    A negative sample that is the word itself is dropped. The rows of words follow those of nodes.
    """
    rows, labels, offset = [], [], 0
    if tables.paths is not None:
        for node, label in tables.paths.path(word):
            rows.append(node)
            labels.append(label)
        offset = len(tables.keep)
    if options.negative:
        rows.append(offset + word)
        labels.append(1.0)
        for _ in range(options.negative):
            other = draw_negative(tables, state)
            if other != word:
                rows.append(offset + other)
                labels.append(0.0)
    return rows, labels


def draw_negative(tables: Word2VecTables, state: Random) -> int:
    """Draw a word by the alias method: 32 random bits choose the column, 32 decide between column and alias."""
    random = state.next()
    column = ((random >> 32) * len(tables.alias)) >> 32
    return column if random & 0xFFFFFFFF < tables.alias_threshold[column] else int(tables.alias[column])


class Random:
    """The generator splitmix64."""

    def __init__(self, state: int) -> None:
        self.state = state

    def next(self) -> int:
        """Return 64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return _mix(self.state)


def epoch_key(seed: int, epoch: int) -> int:
    """Return the key of the random numbers of an epoch."""
    return _mix(_mix(seed & MASK) + epoch + 1 & MASK)


def _mix(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def _position_state(key: int, position: int) -> int:
    return _mix((key + position * 0xD1342543DE82EF95) & MASK)


def _is_kept(tables: Word2VecTables, key: int, position: int) -> bool:
    limit = int(tables.keep[tables.tokens[position]])
    return limit == ALWAYS or Random(_position_state(key, position) ^ MASK).next() >> 32 < limit


def _kept_words(
    tables: Word2VecTables, window: int, key: int, start: int, end: int
) -> tuple[list[int], list[int], int, int]:
    """Return the kept words of a part with `window` more on either side, their positions, and where the part is."""
    before: list[int] = []
    after: list[int] = []
    for position in range(start - 1, -1, -1):
        if tables.tokens[position] == LINE_END or len(before) == window:
            break
        if _is_kept(tables, key, position):
            before.append(position)
    for position in range(end, len(tables.tokens)):
        if tables.tokens[position] == LINE_END or len(after) == window:
            break
        if _is_kept(tables, key, position):
            after.append(position)
    part = [p for p in range(start, end) if tables.tokens[p] == LINE_END or _is_kept(tables, key, p)]
    positions = [*before[::-1], *part, *after]
    words = [LINE_END, *(int(tables.tokens[position]) for position in positions), LINE_END]
    first = 1 + len(before)
    return words, [-1, *positions, -1], first, first + len(part)


def _until_line_end(words: list[int], center: int, step: int, window: int) -> Iterator[int]:
    for distance in range(1, window + 1):
        if words[center + step * distance] == LINE_END:
            return
        yield words[center + step * distance]


def _input_rows(tables: Word2VecTables, word: int) -> list[int]:
    if tables.bag_starts is None or tables.bag_rows is None:
        return [word]
    return tables.bag_rows[tables.bag_starts[word] : tables.bag_starts[word + 1]].tolist()


def hierarchical_log_probability(hidden: Matrix, outputs: Matrix, paths: HuffmanPaths, word: int) -> float:
    """Return log p(word) of hierarchical softmax: the product over the path of σ(±h · node)."""
    return -sum(
        math.log1p(math.exp(-score if label else score))
        for node, label in paths.path(word)
        for score in [float(outputs[node] @ hidden)]
    )
