"""A unigram vocabulary (Kudo 2018): the set of pieces, with probabilities, that makes the texts most likely.

It begins with all frequent substrings. Expectation maximisation gives each piece the number of times that it is
expected to be used, over all ways of cutting every word; then those pieces go whose loss costs least, and so on until
few enough are left.

The library has a trainer of its own, but it adds up in the order of a hash table that differs from run to run, so that
two runs give two vocabularies. This one adds up in a fixed order: the same texts give the same vocabulary.

All words are handled at once. A word is a row of nodes (before, between and after its characters), a piece in a word is
an edge between two nodes, and one step of the forward pass is one position in all words.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORDS = 200_000
"""Distinct words that are looked at, the most frequent first."""
LONGEST_WORD = 40
LONGEST_PIECE = 16
SHRINK = 0.75
"""The share of pieces that stays in each round."""
ROUNDS = 2
"""Steps of expectation maximisation between two rounds."""


def learn(texts: Iterable[str], size: int) -> list[tuple[str, float]]:
    """Pieces with the logarithms of their probabilities, the most likely first; at most `size` of them."""
    words, counts = _words(texts)
    letters = _letters(words, counts, size)
    pieces = [*letters, *_substrings(words, counts, max(10 * size, 20_000), set(letters))]
    probability = np.full(len(pieces), 1 / len(pieces))
    in_words, in_pieces = _edges(words, pieces), _edges(pieces, pieces, whole=False)
    seeds = np.arange(len(pieces))
    while True:
        lattice = _lattice(in_words)
        for _ in range(ROUNDS):
            expected = np.maximum(_expected(lattice, probability, counts), 1e-3)
            probability = expected / expected.sum()
        if len(pieces) <= size:
            break
        goal = size if len(pieces) <= 1.1 * size else max(int(SHRINK * len(pieces)), size)
        loss = expected * (np.log(probability) - _instead(in_pieces, probability)[seeds])
        stay = _survivors(pieces, loss, len(letters), goal)
        in_words, in_pieces = in_words.of(stay, len(pieces)), in_pieces.of(stay, len(pieces))
        seeds = seeds[stay]
        pieces, probability = [pieces[place] for place in stay], probability[stay] / probability[stay].sum()
    scores = [round(float(score), 6) for score in np.log(probability)]
    return sorted(zip(pieces, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))


def _words(texts: Iterable[str]) -> tuple[list[str], NDArray[np.float64]]:
    found: Counter[str] = Counter()
    for text in texts:
        found.update(unicodedata.normalize("NFKC", text).split())
    ranked = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:WORDS]
    return [f"▁{word}"[:LONGEST_WORD] for word, _ in ranked], np.array([float(count) for _, count in ranked])


def _letters(words: Sequence[str], counts: NDArray[np.float64], size: int) -> list[str]:
    """The characters, most frequent first: nothing can be written without them, so they are never dropped."""
    found: Counter[str] = Counter()
    for word, count in zip(words, counts, strict=True):
        for letter in word:
            found[letter] += int(count)
    ranked = sorted(found, key=lambda letter: (-found[letter], letter))
    return ranked[: max(1, size if len(ranked) <= size else size // 2)]


def _substrings(words: Sequence[str], counts: NDArray[np.float64], most: int, letters: set[str]) -> list[str]:
    """Frequent runs of characters, those first that cover most of the texts."""
    found: Counter[str] = Counter()
    for word, count in zip(words, counts.astype(int).tolist(), strict=True):
        for start in range(len(word) - 1):
            for end in range(start + 2, min(len(word), start + LONGEST_PIECE) + 1):
                found[word[start:end]] += count
    often = [piece for piece, count in found.items() if count > 1 and letters.issuperset(piece)]
    return sorted(often, key=lambda piece: (-found[piece] * len(piece), piece))[:most]


@dataclass(frozen=True)
class _Edges:
    """Every piece in every word."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    pieces: NDArray[np.int64]
    starts: NDArray[np.int64]
    """The position in the word at which an edge begins."""
    stops: NDArray[np.int64]
    lengths: NDArray[np.int64]
    """The length of each word."""

    def of(self, stay: NDArray[np.int64], pieces: int) -> _Edges:
        """The edges of those pieces that stay, by their new numbers."""
        number = np.full(pieces, -1, dtype=np.int64)
        number[stay] = np.arange(len(stay))
        alive = number[self.pieces] >= 0
        return _Edges(
            begins=self.begins[alive],
            ends=self.ends[alive],
            pieces=number[self.pieces][alive],
            starts=self.starts[alive],
            stops=self.stops[alive],
            lengths=self.lengths,
        )


@dataclass(frozen=True)
class _Step:
    """The edges that end (or begin) at one position of all words, and the nodes that they meet at."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    pieces: NDArray[np.int64]
    nodes: NDArray[np.int64]
    groups: NDArray[np.int64]
    """Where the edges of each node begin."""


@dataclass(frozen=True)
class _Lattice:
    forward: list[_Step]
    backward: list[_Step]
    first: NDArray[np.int64]
    """The node before each word."""
    last: NDArray[np.int64]
    owner: NDArray[np.int64]
    """The word of each node."""


def _edges(words: Sequence[str], pieces: Sequence[str], *, whole: bool = True) -> _Edges:
    """Where the pieces stand in the words; `whole` says whether a piece may be all of a word."""
    number = {piece: place for place, piece in enumerate(pieces)}
    longest = max(map(len, pieces))
    found: list[tuple[int, int, int, int, int]] = []
    node = 0
    for word in words:
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + longest) + 1):
                piece = number.get(word[start:end])
                if piece is not None and (whole or end - start < len(word)):
                    found.append((node + start, node + end, piece, start, end))
        node += len(word) + 1
    begins, ends, numbers, starts, stops = np.array(found, dtype=np.int64).reshape(-1, 5).T
    lengths = np.array([len(word) for word in words], dtype=np.int64)
    return _Edges(begins=begins, ends=ends, pieces=numbers, starts=starts, stops=stops, lengths=lengths)


def _lattice(edges: _Edges) -> _Lattice:
    first = np.concatenate([[0], np.cumsum(edges.lengths + 1)[:-1]]).astype(np.int64)
    return _Lattice(
        forward=_steps(edges, edges.stops, edges.ends),
        backward=_steps(edges, edges.starts, edges.begins)[::-1],
        first=first,
        last=first + edges.lengths,
        owner=np.repeat(np.arange(len(first)), edges.lengths + 1),
    )


def _steps(edges: _Edges, place: NDArray[np.int64], node: NDArray[np.int64]) -> list[_Step]:
    order = np.lexsort((node, place))
    begins, ends, pieces, place, node = (part[order] for part in (edges.begins, edges.ends, edges.pieces, place, node))
    cuts = np.flatnonzero(np.diff(place)) + 1
    steps = []
    for part in np.split(np.arange(len(order)), cuts):
        groups = np.concatenate([[0], np.flatnonzero(np.diff(node[part])) + 1]).astype(np.int64)
        steps.append(_Step(begins[part], ends[part], pieces[part], node[part][groups], groups))
    return steps


def _expected(lattice: _Lattice, probability: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """How often each piece is expected to be used, over all ways of cutting every word."""
    before, after = np.zeros(len(lattice.owner)), np.zeros(len(lattice.owner))
    before[lattice.first], after[lattice.last] = 1.0, 1.0
    for step in lattice.forward:
        before[step.nodes] = np.add.reduceat(before[step.begins] * probability[step.pieces], step.groups)
    for step in lattice.backward:
        after[step.nodes] = np.add.reduceat(after[step.ends] * probability[step.pieces], step.groups)
    whole = before[lattice.last]
    weight = np.divide(counts, whole, out=np.zeros_like(counts), where=whole > 0)  # 0: a word of unknown letters
    expected = np.zeros(len(probability))
    for step in lattice.forward:
        share = before[step.begins] * probability[step.pieces] * after[step.ends] * weight[lattice.owner[step.ends]]
        expected += np.bincount(step.pieces, weights=share, minlength=len(probability))
    return expected


def _instead(in_pieces: _Edges, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """The likelihood of the best cut of each piece into others, which takes its place if it goes."""
    score, lattice = np.log(probability), _lattice(in_pieces)
    best = np.full(len(lattice.owner), -np.inf)
    best[lattice.first] = 0.0
    for step in lattice.forward:
        best[step.nodes] = np.maximum.reduceat(best[step.begins] + score[step.pieces], step.groups)
    return best[lattice.last]


def _survivors(pieces: Sequence[str], loss: NDArray[np.float64], keep: int, goal: int) -> NDArray[np.int64]:
    """The letters, which come first, and the pieces that are missed most."""
    order = sorted(range(keep, len(pieces)), key=lambda place: (-loss[place], pieces[place]))
    return np.array(sorted([*range(keep), *order[: max(0, goal - keep)]]), dtype=np.int64)
