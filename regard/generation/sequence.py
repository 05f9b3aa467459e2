"""One text as far as it is written: what rules, stop conditions and searches look at."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

from jaxtyping import Float
from torch import Generator, Tensor

Seen = Mapping[str, Float[Tensor, "_ _"]]
"""What was attended to when one token was chosen, by the address of the attention: heads × keys."""


class Row:
    """A row of the network: the tokens that were given, and behind them those that were written.

    A beam search continues every row at every step, and each continuation has all that stands before it. So tokens and
    scores are held as plain numbers, which are copied in one go; as a list, each of them would be touched. What every
    row is asked at every step is an attribute, and no call.
    """

    __slots__ = ("_scores", "_tokens", "given", "last", "length", "limit", "random", "seen", "total")

    def __init__(self, tokens: Iterable[int], given: int, limit: int) -> None:
        self._tokens, self._scores = array("q", tokens), array("d")
        self.given = given
        """How many of the tokens were given: a prompt, or the token that starts a target and a prefix."""
        self.last: int = self._tokens[-1] if self._tokens else -1
        """The last of all tokens; -1, if there is none."""
        self.length = len(self._tokens) - given
        """How many tokens are written."""
        self.limit = limit
        """How many tokens may be written at most."""
        self.total = 0.0
        """What a search ranks the row by: the sum of the log-probabilities, as the rules left them."""
        self.seen: tuple[Seen, ...] = ()
        """What was attended to when each token was chosen, where somebody asked for it."""
        self.random: Generator | None = None
        """The row's own source of chance, where the search draws."""

    def __repr__(self) -> str:
        return f"Row(given={self.tokens[: self.given]}, written={self.written}, limit={self.limit}, total={self.total})"

    @property
    def tokens(self) -> list[int]:
        """All that the decoder has read or is about to read: a list of its own, made when it is asked for."""
        return self._tokens.tolist()

    @property
    def written(self) -> list[int]:
        """The tokens behind the given ones."""
        return self._tokens[self.given :].tolist()

    @property
    def scores(self) -> Sequence[float]:
        """The network's own log-probability of each written token."""
        return self._scores

    def end(self, count: int) -> list[int]:
        """The last of the written tokens, so many at most."""
        return self._tokens[max(self.given, len(self._tokens) - count) :].tolist()

    def append(self, token: int, score: float) -> None:
        """Write one more token here."""
        self._tokens.append(token)
        self._scores.append(score)
        self.last = token
        self.length += 1
        self.total += score

    def then(self, token: int, score: float, total: float) -> Row:
        """A continuation by one token; the row itself stays as it is, for others may continue it too."""
        row = Row.__new__(Row)
        row._tokens = tokens = self._tokens[:]
        tokens.append(token)
        row._scores = scores = self._scores[:]
        scores.append(score)
        row.given, row.last, row.length, row.limit = self.given, token, self.length + 1, self.limit
        row.total, row.seen, row.random = total, self.seen, None
        return row
