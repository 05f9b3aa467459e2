"""Searches: which token a row is continued with.

A search is made of the states of its texts and of one `step`: it looks at what the network says of all rows and moves
every text one token on. Who calls it, and with which texts together, makes no difference to any of them
(`run.py`). Here are the searches that follow one row for each text; `beam.py` has the one that follows several.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.generation.logits_processors import Rule, apply, only_forbid
from regard.generation.result import Hypothesis, hypothesis
from regard.generation.sequence import Row
from regard.generation.stopping_criteria import Stop, Stopped
from regard.generation.topk import best, whole, whole_and_peaks

Logits = Float[Tensor, "rows vocabulary"]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What holds for all texts of a run."""

    rules: Sequence[Rule]
    """What may be written next."""
    stop: Stop
    """When a row is finished."""
    ends: int
    """How many end tokens there are."""


@runtime_checkable
class State(Protocol):
    """One text under search."""

    rows: list[Row]
    """What the network reads next: the same number of rows for every text of a search."""
    parents: list[int]
    """Which of the rows before each of them continues."""

    @property
    def over(self) -> bool:
        """Whether the search is finished."""

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """What was found, the best first."""

    def stable(self) -> list[int]:
        """The written tokens that can no longer change."""


@runtime_checkable
class Search(Protocol):
    """How continuations are looked for."""

    @property
    def size(self) -> int:
        """How many rows each text needs."""

    @property
    def count(self) -> int:
        """How many times each text is written, independently."""

    def begin(self, row: Row, text: str) -> State:
        """The state of a text of which nothing is written yet. `text` tells apart texts that chance may tell apart."""

    def step(self, states: Sequence[State], logits: Logits, terms: Terms) -> None:
        """Move all texts one token on. The logits are of their rows, in order; they may be overwritten."""


class OneRow:
    """The state of a search that follows one row."""

    def __init__(self, row: Row) -> None:
        self.rows = [row]
        self.parents = [0]
        self.stopped: Stopped | None = None

    @property
    def over(self) -> bool:
        """Whether the row is finished."""
        return self.stopped is not None

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The row."""
        assert self.stopped is not None
        return (hypothesis(self.rows[0], self.stopped, self.rows[0].total),)

    def stable(self) -> list[int]:
        """All that is written."""
        return self.rows[0].written


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """The likeliest token, always."""

    size = 1
    count = 1

    def begin(self, row: Row, text: str) -> OneRow:
        """One row."""
        del text
        return OneRow(row)

    def step(self, states: Sequence[State], logits: Logits, terms: Terms) -> None:
        """Write the likeliest token behind every row."""
        said = Said(logits, terms.rules, [state.rows[0] for state in states])
        write(states, said, best(said.ruled, 1, said.peaks)[1][:, 0], terms.stop)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A token by chance, each as often as the network (and the rules) find it likely.

    Chance comes from the seed and the text alone: the same text gives the same result in any company. `count` writes
    each text so many times, each time otherwise.
    """

    seed: int
    count: int = 1
    size = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"each text is written once or more often, found a count of {self.count}")

    def begin(self, row: Row, text: str) -> OneRow:
        """One row, with a source of chance of its own."""
        key = hashlib.blake2b(f"{self.seed} {text}".encode(), digest_size=8).digest()
        row.random = torch.Generator().manual_seed(int.from_bytes(key, "big") >> 1)
        return OneRow(row)

    def step(self, states: Sequence[State], logits: Logits, terms: Terms) -> None:
        """Draw a token for every row."""
        rows = [state.rows[0] for state in states]
        said = Said(logits, terms.rules, rows)
        drawn = torch.stack([torch.rand((), generator=row.random, dtype=torch.float64) for row in rows])
        write(states, said, draw(said.ruled, drawn.to(logits.device)), terms.stop)


def draw(logits: Logits, numbers: Float[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """The token in whose part of the line from 0 to 1 the number falls: each has a part as long as it is likely."""
    edges = logits.softmax(dim=-1).nan_to_num().cumsum(dim=-1, dtype=torch.float64)
    whole = edges[:, -1]
    place = torch.minimum(numbers * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(edges, place[:, None], right=True)[:, 0].clamp(max=logits.shape[1] - 1)


class Said:
    """What the network says of all rows, and what the rules make of it."""

    def __init__(self, logits: Logits, rules: Sequence[Rule], rows: Sequence[Row]) -> None:
        self.own, (self.whole, peaks) = logits, whole_and_peaks(logits)
        plain = only_forbid(rules)
        self.ruled = apply(rules, logits if plain else logits.clone(), rows)
        self.peaks = peaks if plain else None
        """What the ruled scores are no larger than, where that is known."""

    def of(self, chosen: Int[Tensor, " rows"]) -> tuple[list[float], list[bool]]:
        """The network's own log-probability of these tokens, whatever the rules made of it; whether they forbid it. (Of
        what is forbidden there may be none left.)"""
        at = chosen[:, None]
        scores: list[float] = (self.own.gather(1, at) - self.whole)[:, 0].tolist()
        ruled = scores if self.ruled is self.own else self.ruled.gather(1, at)[:, 0].tolist()
        return scores, [score == -math.inf for score in ruled]


def log_probabilities(logits: Logits) -> Logits:
    """log softmax, of what is a number."""
    return logits - whole(logits)


def write(states: Sequence[State], said: Said, chosen: Int[Tensor, " rows"], stop: Stop) -> None:
    """Write the chosen token behind every row, unless the rules forbid even that one."""
    scores, forbidden = said.of(chosen)
    for state, token, score, stuck in zip(states, chosen.tolist(), scores, forbidden, strict=True):
        assert isinstance(state, OneRow)
        if stuck:
            state.stopped = Stopped.STUCK
        else:
            state.rows[0].append(token, score)
            state.stopped = stop(state.rows[0])
