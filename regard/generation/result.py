"""What comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.generation.sequence import Row, Seen
from regard.generation.stopping_criteria import Stopped


@dataclass(frozen=True, kw_only=True, eq=False)
class Hypothesis:
    """One text that was written."""

    tokens: tuple[int, ...]
    """What was written, the end token included; what was given is not repeated."""
    score: float
    """What it was ranked by: the sum of the tokens' log-probabilities, in a beam search divided by length^penalty."""
    token_scores: tuple[float, ...]
    """The network's own log-probability of each token, whatever the rules made of it."""
    stopped: Stopped
    """Why it ends where it ends."""
    attention: tuple[Seen, ...] | None = None
    """On request: for each token what was attended to when it was chosen, by address: heads × keys."""

    def alignment(
        self, address: str | None = None, heads: Sequence[int] | None = None
    ) -> Float[Tensor, "written source"]:
        """How much each token looked at each source token when it was chosen: the mean over the heads."""
        if not self.attention:
            raise ValueError("the attention was not kept: ask for it with Settings(watch=[address])")
        address = address or next(iter(self.attention[0]))
        if address not in self.attention[0]:
            raise ValueError(f"{address!r} was not watched; {', '.join(self.attention[0])} was")
        lines = [step[address] for step in self.attention]
        if len({line.shape for line in lines}) > 1:
            raise ValueError(f"{address!r} is no attention to a source: it sees one token more at each step")
        return torch.stack([(line if heads is None else line[list(heads)]).mean(dim=0) for line in lines])


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What became of one input."""

    number: int
    """Which of the inputs, from 0."""
    hypotheses: tuple[Hypothesis, ...]
    """The best first."""
    limit: int
    """How many tokens might have been written."""
    truncated: int = 0
    """How many tokens of the input were cut off."""

    @property
    def best(self) -> Hypothesis:
        """The best hypothesis."""
        return self.hypotheses[0]

    @property
    def tokens(self) -> tuple[int, ...]:
        """What was written."""
        return self.best.tokens

    @property
    def score(self) -> float:
        """What it was ranked by."""
        return self.best.score

    @property
    def token_scores(self) -> tuple[float, ...]:
        """The log-probability of each token."""
        return self.best.token_scores

    @property
    def stopped(self) -> Stopped:
        """Why it ends where it ends."""
        return self.best.stopped

    @property
    def attention(self) -> tuple[Seen, ...] | None:
        """On request: what was attended to when each token was chosen."""
        return self.best.attention


def hypothesis(row: Row, stopped: Stopped, score: float) -> Hypothesis:
    """What a finished row becomes."""
    return Hypothesis(
        tokens=tuple(row.written),
        score=score,
        token_scores=tuple(row.scores),
        stopped=stopped,
        attention=row.seen[: row.length] if row.seen else None,
    )
