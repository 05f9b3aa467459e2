"""Train a unigram vocabulary (Kudo 2018): the set of pieces, with probabilities, that maximizes the likelihood of the
texts.

Training starts with all frequent substrings. Expectation maximization estimates the probability of each piece from its
expected count over all segmentations of every word. Then the pieces whose removal costs the least likelihood are
pruned, and so on until the vocabulary has the requested size.

The trainer of the tokenizers library sums in the order of a hash table that differs from run to run, so that two runs
give two vocabularies. This one sums in a fixed order: the same texts give the same vocabulary.

All words are processed at once. A word is a sequence of nodes (before, between and after its characters), a piece in a
word is an edge between two nodes, and one step of the forward pass covers one position in all words.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_WORDS = 200_000
"""Maximum number of distinct words to train on, the most frequent first."""
MAX_WORD_LENGTH = 40
MAX_PIECE_LENGTH = 16
SHRINKING_FACTOR = 0.75
"""Fraction of the pieces that each round of pruning keeps."""
EM_ITERATIONS = 2
"""EM iterations before each round of pruning."""


def train_unigram(texts: Iterable[str], size: int) -> list[tuple[str, float]]:
    """Return at most `size` pieces with their log-probabilities, the most probable first."""
    words, counts = _count_words(texts)
    alphabet = _alphabet(words, counts, size)
    pieces = [*alphabet, *_seed_substrings(words, counts, max(10 * size, 20_000), set(alphabet))]
    probability = np.full(len(pieces), 1 / len(pieces))
    word_edges, piece_edges = _find_edges(words, pieces), _find_edges(pieces, pieces, allow_whole_word=False)
    seed_indices = np.arange(len(pieces))
    while True:
        lattice = _build_lattice(word_edges)
        for _ in range(EM_ITERATIONS):
            expected = np.maximum(_expected_counts(lattice, probability, counts), 1e-3)
            probability = expected / expected.sum()
        if len(pieces) <= size:
            break
        new_size = size if len(pieces) <= 1.1 * size else max(int(SHRINKING_FACTOR * len(pieces)), size)
        loss = expected * (np.log(probability) - _best_alternative_scores(piece_edges, probability)[seed_indices])
        keep = _pieces_to_keep(pieces, loss, len(alphabet), new_size)
        word_edges, piece_edges = word_edges.select(keep, len(pieces)), piece_edges.select(keep, len(pieces))
        seed_indices = seed_indices[keep]
        pieces, probability = [pieces[index] for index in keep], probability[keep] / probability[keep].sum()
    scores = [round(float(score), 6) for score in np.log(probability)]
    return sorted(zip(pieces, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))


def _count_words(texts: Iterable[str]) -> tuple[list[str], NDArray[np.float64]]:
    frequencies: Counter[str] = Counter()
    for text in texts:
        frequencies.update(unicodedata.normalize("NFKC", text).split())
    ranked = sorted(frequencies.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_WORDS]
    return [f"▁{word}"[:MAX_WORD_LENGTH] for word, _ in ranked], np.array([float(count) for _, count in ranked])


def _alphabet(words: Sequence[str], counts: NDArray[np.float64], size: int) -> list[str]:
    """Return the characters, most frequent first. They are never pruned, so that every text can be segmented."""
    frequencies: Counter[str] = Counter()
    for word, count in zip(words, counts, strict=True):
        for character in word:
            frequencies[character] += int(count)
    ranked = sorted(frequencies, key=lambda character: (-frequencies[character], character))
    return ranked[: max(1, size if len(ranked) <= size else size // 2)]


def _seed_substrings(words: Sequence[str], counts: NDArray[np.float64], limit: int, alphabet: set[str]) -> list[str]:
    """Return frequent substrings, in the order of the number of characters that they cover."""
    frequencies: Counter[str] = Counter()
    for word, count in zip(words, counts.astype(int).tolist(), strict=True):
        for start in range(len(word) - 1):
            for end in range(start + 2, min(len(word), start + MAX_PIECE_LENGTH) + 1):
                frequencies[word[start:end]] += count
    frequent = [piece for piece, count in frequencies.items() if count > 1 and alphabet.issuperset(piece)]
    return sorted(frequent, key=lambda piece: (-frequencies[piece] * len(piece), piece))[:limit]


@dataclass(frozen=True)
class _Edges:
    """All occurrences of the pieces in the words."""

    sources: NDArray[np.int64]
    """The node at which each edge starts."""
    targets: NDArray[np.int64]
    """The node at which each edge ends."""
    pieces: NDArray[np.int64]
    """The index of each edge's piece."""
    starts: NDArray[np.int64]
    """The position in the word at which each edge starts."""
    ends: NDArray[np.int64]
    """The position in the word at which each edge ends."""
    lengths: NDArray[np.int64]
    """The length of each word."""

    def select(self, keep: NDArray[np.int64], num_pieces: int) -> _Edges:
        """Return the edges of the pieces to keep, with their new indices."""
        new_index = np.full(num_pieces, -1, dtype=np.int64)
        new_index[keep] = np.arange(len(keep))
        kept = new_index[self.pieces] >= 0
        return _Edges(
            sources=self.sources[kept],
            targets=self.targets[kept],
            pieces=new_index[self.pieces][kept],
            starts=self.starts[kept],
            ends=self.ends[kept],
            lengths=self.lengths,
        )


@dataclass(frozen=True)
class _LatticeStep:
    """The edges that end (or start) at one position of all words, grouped by the node there."""

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    pieces: NDArray[np.int64]
    nodes: NDArray[np.int64]
    groups: NDArray[np.int64]
    """The index of the first edge of each node."""


@dataclass(frozen=True)
class _Lattice:
    forward: list[_LatticeStep]
    backward: list[_LatticeStep]
    first: NDArray[np.int64]
    """The first node of each word."""
    last: NDArray[np.int64]
    """The last node of each word."""
    word: NDArray[np.int64]
    """The index of each node's word."""


def _find_edges(words: Sequence[str], pieces: Sequence[str], *, allow_whole_word: bool = True) -> _Edges:
    """Find all occurrences of the pieces in the words; `allow_whole_word` includes pieces that span a whole word."""
    index = {piece: position for position, piece in enumerate(pieces)}
    max_length = max(map(len, pieces))
    edges: list[tuple[int, int, int, int, int]] = []
    first_node = 0
    for word in words:
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + max_length) + 1):
                piece = index.get(word[start:end])
                if piece is not None and (allow_whole_word or end - start < len(word)):
                    edges.append((first_node + start, first_node + end, piece, start, end))
        first_node += len(word) + 1
    sources, targets, indices, starts, ends = np.array(edges, dtype=np.int64).reshape(-1, 5).T
    lengths = np.array([len(word) for word in words], dtype=np.int64)
    return _Edges(sources=sources, targets=targets, pieces=indices, starts=starts, ends=ends, lengths=lengths)


def _build_lattice(edges: _Edges) -> _Lattice:
    first = np.concatenate([[0], np.cumsum(edges.lengths + 1)[:-1]]).astype(np.int64)
    return _Lattice(
        forward=_group_by_position(edges, edges.ends, edges.targets),
        backward=_group_by_position(edges, edges.starts, edges.sources)[::-1],
        first=first,
        last=first + edges.lengths,
        word=np.repeat(np.arange(len(first)), edges.lengths + 1),
    )


def _group_by_position(edges: _Edges, positions: NDArray[np.int64], nodes: NDArray[np.int64]) -> list[_LatticeStep]:
    order = np.lexsort((nodes, positions))
    sources, targets, pieces, positions, nodes = (
        values[order] for values in (edges.sources, edges.targets, edges.pieces, positions, nodes)
    )
    boundaries = np.flatnonzero(np.diff(positions)) + 1
    steps = []
    for part in np.split(np.arange(len(order)), boundaries):
        groups = np.concatenate([[0], np.flatnonzero(np.diff(nodes[part])) + 1]).astype(np.int64)
        steps.append(_LatticeStep(sources[part], targets[part], pieces[part], nodes[part][groups], groups))
    return steps


def _expected_counts(
    lattice: _Lattice, probability: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the expected count of each piece over all segmentations of every word (forward-backward algorithm)."""
    forward, backward = np.zeros(len(lattice.word)), np.zeros(len(lattice.word))
    forward[lattice.first], backward[lattice.last] = 1.0, 1.0
    for step in lattice.forward:
        forward[step.nodes] = np.add.reduceat(forward[step.sources] * probability[step.pieces], step.groups)
    for step in lattice.backward:
        backward[step.nodes] = np.add.reduceat(backward[step.targets] * probability[step.pieces], step.groups)
    likelihood = forward[lattice.last]
    # the likelihood is 0 for a word with a character outside the alphabet
    weight = np.divide(counts, likelihood, out=np.zeros_like(counts), where=likelihood > 0)
    expected = np.zeros(len(probability))
    for step in lattice.forward:
        posterior = (
            forward[step.sources]
            * probability[step.pieces]
            * backward[step.targets]
            * weight[lattice.word[step.targets]]
        )
        expected += np.bincount(step.pieces, weights=posterior, minlength=len(probability))
    return expected


def _best_alternative_scores(piece_edges: _Edges, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-probability of the best segmentation of each piece into other pieces, which would replace it."""
    score, lattice = np.log(probability), _build_lattice(piece_edges)
    best = np.full(len(lattice.word), -np.inf)
    best[lattice.first] = 0.0
    for step in lattice.forward:
        best[step.nodes] = np.maximum.reduceat(best[step.sources] + score[step.pieces], step.groups)
    return best[lattice.last]


def _pieces_to_keep(
    pieces: Sequence[str], loss: NDArray[np.float64], alphabet_size: int, new_size: int
) -> NDArray[np.int64]:
    """Return the indices of the alphabet, which comes first, and of the pieces with the largest loss."""
    ranked = sorted(range(alphabet_size, len(pieces)), key=lambda index: (-loss[index], pieces[index]))
    return np.array(sorted([*range(alphabet_size), *ranked[: max(0, new_size - alphabet_size)]]), dtype=np.int64)
