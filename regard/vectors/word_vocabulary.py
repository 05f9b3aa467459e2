"""The words that get a vector, with their counts, and the distributions that follow from the counts."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.vectors.vector_options import TextOptions

NEGATIVE_EXPONENT = 0.75
ALWAYS = 2**32 - 1
"""As a probability in 32 bits: one."""


@dataclass(frozen=True)
class WordVocabulary:
    """Words by index, the most frequent first; of equally frequent words, in alphabetical order."""

    words: list[str]
    counts: NDArray[np.int64]

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each word."""
        return {word: index for index, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @property
    def total(self) -> int:
        """Number of words in the text, without those that have no vector."""
        return int(self.counts.sum())


def make_vocabulary(counts: Mapping[str, int], options: TextOptions) -> WordVocabulary:
    """Choose the words that are frequent enough."""
    chosen = [(-count, word) for word, count in counts.items() if count >= options.min_count]
    chosen.sort()
    del chosen[options.max_vocabulary or len(chosen) :]
    if not chosen:
        raise ValueError(
            f"no word occurs {options.min_count} times ({len(counts):,} different words): "
            "use a larger text or a smaller min_count"
        )
    return WordVocabulary([word for _, word in chosen], np.array([-count for count, _ in chosen], np.int64))


def count_words(blocks: Iterable[list[list[str]]]) -> Counter[str]:
    """Count all words of a text."""
    counts: Counter[str] = Counter()
    for block in blocks:
        for line in block:
            counts.update(line)
    return counts


def keep_probabilities(counts: NDArray[np.int64], sample: float) -> NDArray[np.float64]:
    """Return the probability of each word to survive subsampling: (√(f / sample) + 1) · sample / f, at most 1.

    f is the word's share of the text. (The paper has √(sample / f); this is what word2vec computes.)
    """
    if sample == 0:
        return np.ones(len(counts))
    ratio = counts / (sample * counts.sum())
    return np.minimum(1.0, (np.sqrt(ratio) + 1) / ratio)


def negative_probabilities(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability of each word as a negative sample: its count to the power of 3/4, normalized."""
    powers = counts.astype(np.float64) ** NEGATIVE_EXPONENT
    return powers / powers.sum()


def as_uint32(probabilities: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Return probabilities as fractions of 2^32; `ALWAYS` stands for one."""
    return np.minimum(np.floor(probabilities * 2.0**32), ALWAYS).astype(np.uint32)


def alias_table(probabilities: NDArray[np.float64]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return the table of the alias method: thresholds and aliases.

    To draw, choose a column uniformly; with the probability of its threshold the result is the column, otherwise its
    alias. One draw reads one entry, where a search in the cumulative distribution reads log2(n).
    """
    size = len(probabilities)
    shares = probabilities * size
    thresholds, alias = np.ones(size), np.arange(size, dtype=np.int32)
    small = [index for index in range(size) if shares[index] < 1]
    large = [index for index in range(size) if shares[index] >= 1]
    while small and large:
        column, donor = small.pop(), large[-1]
        thresholds[column], alias[column] = shares[column], donor
        shares[donor] -= 1 - shares[column]
        if shares[donor] < 1:
            small.append(large.pop())
    return as_uint32(thresholds), alias


@dataclass(frozen=True)
class HuffmanPaths:
    """For each word, the inner nodes from the root to its leaf, and a label for each: 1 left, 0 right."""

    starts: NDArray[np.int64]
    """The path of word w is nodes[starts[w] : starts[w + 1]]."""
    nodes: NDArray[np.int32]
    labels: NDArray[np.float32]

    def path(self, word: int) -> Iterator[tuple[int, float]]:
        """Yield the nodes of a word's path with their labels."""
        for place in range(self.starts[word], self.starts[word + 1]):
            yield int(self.nodes[place]), float(self.labels[place])


def huffman_paths(counts: NDArray[np.int64]) -> HuffmanPaths:
    """Build the Huffman tree of the words; frequent words have short paths. There are `len(counts)` - 1 inner nodes."""
    size = len(counts)
    heap = [(int(count), index) for index, count in enumerate(counts)]
    heapq.heapify(heap)
    parents, lefts = [0] * (2 * size - 1), [1.0] * (2 * size - 1)
    for node in range(size, 2 * size - 1):
        (left_count, left), (right_count, right) = heapq.heappop(heap), heapq.heappop(heap)
        parents[left] = parents[right] = node
        lefts[right] = 0.0
        heapq.heappush(heap, (left_count + right_count, node))
    starts, nodes, labels = [0], [], []
    root = 2 * size - 2
    for word in range(size):
        path, node = [], word
        while node != root:
            path.append((root - parents[node], lefts[node]))  # the root is node 0
            node = parents[node]
        nodes += [node for node, _ in reversed(path)]
        labels += [label for _, label in reversed(path)]
        starts.append(len(nodes))
    return HuffmanPaths(np.array(starts, np.int64), np.array(nodes, np.int32), np.array(labels, np.float32))
