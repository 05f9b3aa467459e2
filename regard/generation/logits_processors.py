"""Rules: what may be written next, and how likely.

A rule is a function of logits, one line for each row, and of the rows; it gives new logits, and may write them over the
old ones, for there are many of them. -inf forbids a token. Rules are applied in the order in which they are given; a
beam search applies them to log-probabilities. Those of published generation configs mean what they mean in
transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.generation.sequence import Row

Logits = Float[Tensor, "rows vocabulary"]
Rule = Callable[[Logits, Sequence[Row]], Logits]


class Forbidding:
    """A rule that forbids some tokens, in place, and leaves the scores of all others as they are, and that finds the
    same ones in logits and in log-probabilities: what it leaves may be looked at without keeping what there was before,
    and no score is larger than it was."""


def only_forbid(rules: Sequence[Rule]) -> bool:
    """Whether these rules do no more than that."""
    return all(isinstance(rule, Forbidding) for rule in rules)


def apply(rules: Sequence[Rule], logits: Logits, rows: Sequence[Row]) -> Logits:
    """All rules, one after the other. What is given may be overwritten."""
    for rule in rules:
        logits = rule(logits, rows)
    return logits


@dataclass(frozen=True)
class Temperature:
    """Below 1 the likely becomes likelier, above 1 everything more alike."""

    value: float

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise ValueError(f"a temperature is more than 0, found {self.value}; for the likeliest token, use Greedy()")

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Divide by the temperature."""
        del rows
        return logits.div_(self.value)


@dataclass(frozen=True)
class TopK(Forbidding):
    """Only the `count` likeliest tokens, and those that are as likely as the last of them."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"at least one token must be left, found a top-k of {self.count}")

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Forbid the others."""
        del rows
        last = logits.topk(min(self.count, logits.shape[1])).values[:, -1:]
        return logits.masked_fill_(logits < last, -torch.inf)


@dataclass(frozen=True)
class TopP(Forbidding):
    """Only the likeliest tokens that together make up a probability of `share` (Holtzman et al. 2019)."""

    share: float

    def __post_init__(self) -> None:
        _check_share("top-p", self.share)

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Forbid the unlikely tail; the likeliest token stays in any case."""
        del rows
        ascending, order = logits.sort(dim=-1)
        tail = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - self.share
        tail[:, -1] = False
        return logits.masked_fill_(torch.zeros_like(tail).scatter(1, order, tail), -torch.inf)


@dataclass(frozen=True)
class MinP(Forbidding):
    """Only tokens that are at least `share` times as likely as the likeliest."""

    share: float

    def __post_init__(self) -> None:
        _check_share("min-p", self.share)

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Forbid the others."""
        del rows
        chance = logits.softmax(dim=-1)
        return logits.masked_fill_(chance < self.share * chance.amax(dim=-1, keepdim=True), -torch.inf)


def _check_share(name: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"{name} is a share from 0 to 1, found {share}")


@dataclass(frozen=True)
class RepetitionPenalty:
    """Tokens that the row has already become less likely (Keskar et al. 2019); below 1, likelier."""

    penalty: float

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise ValueError(f"a repetition penalty is more than 0, found {self.penalty}")

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Divide what is positive, multiply what is negative; the given tokens count too."""
        used = [(number, token) for number, row in enumerate(rows) for token in set(row.tokens)]
        at = torch.tensor([pair for pair in used if pair[1] < logits.shape[1]], device=logits.device).T
        scores = logits[at[0], at[1]]
        scores = torch.where(scores < 0, scores * self.penalty, scores / self.penalty)
        return logits.index_put_((at[0], at[1]), scores)


@dataclass(frozen=True)
class NoRepeat(Forbidding):
    """No `size` tokens in a row occur twice; the given tokens count too."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"n-grams have at least one token, found {self.size}")

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Forbid what followed the same `size` - 1 tokens before."""
        return _forbid(logits, [self._repeating(row.tokens) for row in rows])

    def _repeating(self, tokens: list[int]) -> list[int]:
        before = self.size - 1
        tail = tokens[len(tokens) - before :]
        ends = range(before, len(tokens))
        return [tokens[at] for at in ends if tokens[at - before : at] == tail]


@dataclass(frozen=True)
class Forbid(Forbidding):
    """These tokens, and these sequences of tokens, are never written."""

    sequences: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        if not all(self.sequences):
            raise ValueError("a forbidden sequence has at least one token")

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Forbid the last token of each sequence whose other tokens the row ends with."""
        for sequence in self.sequences:
            if not all(0 <= token < logits.shape[1] for token in sequence):
                raise ValueError(
                    f"the forbidden sequence {list(sequence)} is not in a vocabulary of {logits.shape[1]} tokens"
                )
        return _forbid(logits, [self._completed(row.tokens) for row in rows])

    def _completed(self, tokens: list[int]) -> list[int]:
        """The tokens that would complete a sequence behind these."""
        return [sequence[-1] for sequence in self.sequences if _ends(tokens, sequence[:-1])]


def _ends(tokens: list[int], with_these: Sequence[int]) -> bool:
    return len(tokens) >= len(with_these) and tokens[len(tokens) - len(with_these) :] == list(with_these)


@dataclass(frozen=True)
class MinLength(Forbidding):
    """An `end` token comes only after `length` others."""

    length: int
    end: Sequence[int]

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Forbid the end to rows that are still too short."""
        return _forbid(logits, [self.end if row.length < self.length else () for row in rows])


@dataclass(frozen=True)
class Begin:
    """What is written begins with these tokens: mBART's language, a beginning that somebody wants."""

    tokens: Sequence[int]

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Forbid all others while the beginning is being written."""
        forced = {n: self.tokens[row.length] for n, row in enumerate(rows) if row.length < len(self.tokens)}
        return _force(logits, forced)


@dataclass(frozen=True)
class EndAtLimit:
    """The last token that a row has room for is the end: BART's summaries."""

    end: int

    def __call__(self, logits: Logits, rows: Sequence[Row]) -> Logits:
        """Forbid all other tokens in that place."""
        return _force(logits, {n: self.end for n, row in enumerate(rows) if row.length == row.limit - 1})


def _forbid(logits: Logits, tokens: Sequence[Sequence[int]]) -> Logits:
    """Forbid each row its tokens."""
    if len(tokens[0]) == 1 and tokens.count(tokens[0]) == len(tokens):
        logits[:, tokens[0][0]] = -torch.inf
        return logits
    pairs = [(row, token) for row, forbidden in enumerate(tokens) for token in forbidden]
    if not pairs:
        return logits
    at = torch.tensor(pairs, device=logits.device).T
    return logits.index_put_((at[0], at[1]), logits.new_tensor(-torch.inf))


def _force(logits: Logits, tokens: dict[int, int]) -> Logits:
    """Forbid these rows everything but one token, which becomes certain."""
    if not tokens:
        return logits
    for token in set(tokens.values()):
        if not 0 <= token < logits.shape[1]:
            raise ValueError(f"token {token} is forced, but the vocabulary has {logits.shape[1]} tokens")
    rows = torch.tensor(list(tokens), device=logits.device)
    logits.index_fill_(0, rows, -torch.inf)
    logits[rows, torch.tensor(list(tokens.values()), device=logits.device)] = 0
    return logits
