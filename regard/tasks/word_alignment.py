"""Which tokens go with which, learnt from parallel text: what a shortlist is made of.

IBM's first model (Brown et al. 1993) knows only how often a token of the target comes from one of the source. At first
every token of a line may come from every token of the other side alike; each round shares them out by what the round
before has found:

    share(t ← s) = p(t|s) / Σ p(t|s') over the line         p(t|s) = shares of t from s / shares of all from s

Every line has one more source, nothing, for tokens that come from no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.example import Pair
from regard.engine.shortlist import Shortlist
from regard.tokenization.tokenizer import Tokenizer

Whole = NDArray[np.int64]
Real = NDArray[np.float64]

LINES = 2000
"""How many lines are looked at together."""
PENDING = 20_000_000
"""So many counts are gathered before they are added up."""


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """How to learn a shortlist."""

    best: int = 50
    """How many tokens of the target go with each of the source, at most."""
    frequent: int = 100
    """How many of the most frequent tokens are in every list."""
    rounds: int = 4
    lines: int = 1_000_000
    """Lines that are learnt from at most: of more, every second, every third, … is taken."""


USUAL = Lexicon()


@dataclass(frozen=True)
class Lines:
    """Some aligned lines, the tokens of each side in a row."""

    source: Whole
    source_lengths: Whole
    target: Whole
    target_lengths: Whole

    def pairs(self, nothing: int) -> tuple[Whole, Whole, Whole]:
        """Each token of the target with every token of its source, the one that stands for nothing last: sources,
        targets, and where the pairs of each token of the target begin."""
        ends = np.cumsum(self.source_lengths)
        sources = np.insert(self.source, ends, nothing)
        line = np.repeat(np.arange(len(ends)), self.target_lengths)
        many = (self.source_lengths + 1)[line]
        begins = np.cumsum(many) - many
        first = (ends - self.source_lengths + np.arange(len(ends)))[line]
        at = np.arange(int(many.sum())) + np.repeat(first - begins, many)
        return sources[at], np.repeat(self.target, many), begins


def learn(pairs: Iterable[Pair], tokenizer: Tokenizer, sizes: tuple[int, int], how: Lexicon = USUAL) -> Shortlist:
    """The shortlist of the tokens of these pairs of lines. `sizes`: how many tokens each side of the network knows."""
    corpus = _thinned(list(_read(pairs, tokenizer)), how.lines)
    if not any(len(lines.target) for lines in corpus):
        raise ValueError("there are no lines to learn a shortlist from: all are empty")
    source, target = sizes
    keys, shares = probabilities(corpus, sizes, how.rounds)
    keys, shares = keys[keys < source * target], shares[keys < source * target]  # nothing is in no list
    order = np.lexsort((-shares, keys // target))
    of = keys[order] // target
    starts = np.searchsorted(of, np.arange(source + 1))
    among = np.arange(len(of)) - starts[of] < how.best
    counts = sum(np.bincount(lines.target, minlength=target) for lines in corpus)
    frequent = np.argsort(-np.asarray(counts), kind="stable")[: how.frequent]
    return Shortlist(
        starts=_tensor(np.searchsorted(of[among], np.arange(source + 1))),
        targets=_tensor(keys[order][among] % target),
        frequent=_tensor(frequent[np.asarray(counts)[frequent] > 0]),
        vocabulary=target,
    )


def probabilities(corpus: Sequence[Lines], sizes: tuple[int, int], rounds: int) -> tuple[Whole, Real]:
    """p(t|s) of all pairs that occur, by the pair's key: s · target vocabulary + t. The source's last is nothing."""
    source, target = sizes
    keys: Whole = np.zeros(0, np.int64)
    found: Real = np.zeros(0)
    for round_ in range(max(rounds, 1)):
        shares = [] if round_ == 0 else [(keys, np.zeros(len(keys)))]
        for lines in corpus:
            sources, targets, begins = lines.pairs(source)
            if not len(begins):
                continue
            here, each = np.unique(sources * target + targets, return_inverse=True)
            likely = (np.ones(len(here)) if round_ == 0 else found[np.searchsorted(keys, here)])[each]
            many = np.diff(begins, append=len(likely))
            share = likely / np.repeat(np.add.reduceat(likely, begins), many)
            _count(shares, here, _sums(each, share))
        keys, found = _added(shares)
        found = found / _sums(keys // target, found)[keys // target]
    return keys, found


def _count(shares: list[tuple[Whole, Real]], keys: Whole, more: Real) -> None:
    """Note shares; where all keys are known already, they are added in place."""
    known, total = shares[0] if shares else (keys, more)
    at = np.searchsorted(known, keys)
    if shares and len(known) and at[-1] < len(known) and bool((known[at] == keys).all()):
        total[at] += more
        return
    shares.append((keys, more))
    if sum(len(some) for some, _ in shares) > PENDING:
        shares[:] = [_added(shares)]


def _added(shares: Sequence[tuple[Whole, Real]]) -> tuple[Whole, Real]:
    keys, each = np.unique(np.concatenate([keys for keys, _ in shares]), return_inverse=True)
    return keys, _sums(each, np.concatenate([more for _, more in shares]))


def _sums(of: Whole, values: Real) -> Real:
    """The values of each number, added up."""
    return np.bincount(of, values).astype(np.float64, copy=False)


def usual_length(pairs: Iterable[Pair], tokenizer: Tokenizer, shortlist: Shortlist) -> float:
    """How many tokens the list of a text has, on average."""
    rows = tokenizer.ids_of([pair.source for pair in pairs], special_tokens=False)
    return sum(len(shortlist.of(row)) for row in rows) / max(len(rows), 1)


def _read(pairs: Iterable[Pair], tokenizer: Tokenizer) -> Iterator[Lines]:
    remaining = iter(pairs)
    while some := list(islice(remaining, LINES)):
        source = tokenizer.ids_of([pair.source for pair in some], special_tokens=False)
        target = tokenizer.target.ids_of([pair.target for pair in some], special_tokens=False)
        yield Lines(*_side(source), *_side(target))


def _side(rows: Sequence[Sequence[int]]) -> tuple[Whole, Whole]:
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.fromiter((token for row in rows for token in row), np.int64, int(lengths.sum())), lengths


def _thinned(corpus: Sequence[Lines], most: int) -> list[Lines]:
    """Every so many-th part of the lines, if there are more than enough."""
    step = -(-sum(len(lines.target_lengths) for lines in corpus) // most)
    return list(corpus[:: max(step, 1)])


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int32))
