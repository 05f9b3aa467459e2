"""One text as far as it is written: what rules, stop conditions and searches look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Generator, Tensor

Seen = Mapping[str, Float[Tensor, "_ _"]]
"""What was attended to when one token was chosen, by the address of the attention: heads × keys."""


@dataclass(slots=True)
class Row:
    """A row of the network: the tokens that were given, and behind them those that were written."""

    tokens: list[int]
    """All that the decoder has read or is about to read."""
    given: int
    """How many of them were given: a prompt, or the token that starts a target and a prefix."""
    limit: int
    """How many tokens may be written at most."""
    scores: list[float] = field(default_factory=list)
    """The network's own log-probability of each written token."""
    total: float = 0.0
    """What a search ranks the row by: the sum of the log-probabilities, as the rules left them."""
    seen: list[Seen] = field(default_factory=list)
    """What was attended to when each token was chosen, where somebody asked for it."""
    random: Generator | None = None
    """The row's own source of chance, where the search draws."""

    @property
    def written(self) -> list[int]:
        """The tokens behind the given ones."""
        return self.tokens[self.given :]

    @property
    def length(self) -> int:
        """How many tokens are written."""
        return len(self.tokens) - self.given

    def append(self, token: int, score: float) -> None:
        """Write one more token here."""
        self.tokens.append(token)
        self.scores.append(score)
        self.total += score

    def then(self, token: int, score: float, total: float) -> Row:
        """A continuation by one token; the row itself stays as it is, for others may continue it too."""
        return Row([*self.tokens, token], self.given, self.limit, [*self.scores, score], total, [*self.seen])
