"""Beam search: the best few continuations of a text at once.

    step 1            step 2            step 3
    the      -0.4     the cat   -0.9    the cat sat    -1.1     `size` live rows, the likeliest first
    a        -1.2     a cat     -1.9    the cat slept  -1.6
    (end)    -3.0     the dog   -2.2    the cat (end)  -2.4     those that end are put aside, scored by length

A text is finished when what is put aside cannot be (or is not expected to be) beaten by what is alive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from regard.generation.logits_processors import apply, only_forbid
from regard.generation.result import Hypothesis, hypothesis
from regard.generation.search import Logits, State, Terms
from regard.generation.sequence import Row
from regard.generation.stopping_criteria import Stop, Stopped
from regard.generation.topk import Candidate, continuations, whole_and_peaks


class Until(Enum):
    """When a beam search is content with what it has put aside."""

    FULL = True
    """As soon as `size` texts are put aside (transformers: early_stopping=True)."""
    UNLIKELY = False
    """When the best live row, at its present length, scores no better than the worst text aside (the default)."""
    IMPOSSIBLE = "never"
    """The same, but the live row is scored as if it got as long as is best for it: slower, and sure where the length
    penalty is positive."""


@dataclass(frozen=True, kw_only=True)
class Beam:
    """The `size` best continuations are followed; finished ones are ranked by log-probability / length^penalty."""

    size: int = 4
    length_penalty: float = 1.0
    """0: no penalty; above 1, longer texts are preferred."""
    until: Until = Until.UNLIKELY
    best: int = 1
    """How many hypotheses are returned."""
    count = 1

    def __post_init__(self) -> None:
        if not 1 <= self.best <= self.size:
            raise ValueError(
                f"a beam of {self.size} gives from 1 to {self.size} hypotheses, found best={self.best}: "
                "make the beam larger or ask for fewer"
            )

    def begin(self, row: Row, text: str) -> Beams:
        """One live row; the first step makes more of it."""
        del text
        return Beams(self, row)

    def step(self, states: Sequence[State], logits: Logits, terms: Terms) -> None:
        """Continue every text with its best tokens."""
        rows = [row for state in states for row in state.rows]
        sums, peaks = whole_and_peaks(logits)
        plain = only_forbid(terms.rules)
        ruled = apply(terms.rules, logits if plain else logits - sums, rows)
        # Enough candidates that `size` of them are alive even if every row could end in every way.
        count = max(2, 1 + terms.ends) * self.size
        less, before = sums if plain else None, [row.total for row in rows]
        found = continuations(ruled, less, before, logits, sums, len(states), count, peaks if plain else None)
        for state, candidates in zip(states, found, strict=True):
            assert isinstance(state, Beams)
            state.advance(candidates, terms.stop)


class Beams:
    """The state of a beam search: live rows, and what is put aside."""

    def __init__(self, search: Beam, row: Row) -> None:
        self.search = search
        self.rows = [row]
        self.parents = [0]
        self.aside: list[Hypothesis] = []
        self.over = False

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The best of what was put aside."""
        return tuple(self.aside[: self.search.best])

    def stable(self) -> list[int]:
        """What all begin with that may still win."""
        texts = [row.written for row in self.rows if row.total > -math.inf] if not self.over else []
        texts += [list(found.tokens) for found in (self.aside[:1] if self.over else self.aside)]
        shared = 0
        while all(len(text) > shared for text in texts) and len({text[shared] for text in texts}) == 1:
            shared += 1
        return texts[0][:shared]

    def advance(self, candidates: Iterable[Candidate], stop: Stop) -> None:
        """Continue with the best candidates that are alive; put aside those that end, if they are among the best."""
        size, live, aside, rows = self.search.size, list[tuple[int, Row]](), len(self.aside), self.rows
        for rank, (total, parent, token, score) in enumerate(candidates):
            if total == -math.inf:
                break
            row = rows[parent].then(token, score, total)
            reason = stop(row)
            if reason is None:
                live.append((parent, row))
                if len(live) == size:
                    break
            elif rank < size:
                self.aside.append(hypothesis(row, reason, self.scored(row.total, row.length)))
        if len(self.aside) > aside:
            self.aside.sort(key=lambda found: -found.score)
            del self.aside[size:]
        self.over = not live or self.content(live[0][1])
        if self.over and not self.aside:
            row = max(self.rows, key=lambda row: row.total)
            self.aside.append(hypothesis(row, Stopped.STUCK, self.scored(row.total, max(row.length, 1))))
        if not self.over:
            self.place(live)

    def scored(self, total: float, length: int) -> float:
        """What a finished text of this length is ranked by."""
        return float(total / length**self.search.length_penalty)

    def content(self, best: Row) -> bool:
        """Whether what is put aside is enough, this being the best live row."""
        if len(self.aside) < self.search.size:
            return False
        longest = self.search.until is Until.IMPOSSIBLE and self.search.length_penalty > 0
        reachable = self.scored(best.total, best.limit if longest else best.length)
        return self.search.until is Until.FULL or reachable <= self.aside[-1].score

    def place(self, live: Sequence[tuple[int, Row]]) -> None:
        """Give each live row a place: its parent's if that is free, so that little has to be copied in a cache.

        Places that are left over are filled with rows that nothing can come of.
        """
        places: list[Row | None] = [None] * self.search.size
        parents, waiting = list(range(self.search.size)), list[tuple[int, Row]]()
        for parent, row in live:
            if places[parent] is None:
                places[parent] = row
            else:
                waiting.append((parent, row))
        if waiting or len(live) < len(places):
            left, best = iter(waiting), live[0][1]
            for at, taken in enumerate(places):
                if taken is None:
                    parents[at], places[at] = next(left, None) or _nothing(self.rows, at, best)
        self.parents, self.rows = parents, [row for row in places if row is not None]


def _nothing(rows: Sequence[Row], at: int, like: Row) -> tuple[int, Row]:
    parent = min(at, len(rows) - 1)
    return parent, rows[parent].then(like.last, -math.inf, -math.inf)
