"""A generated text: what the results of tasks that write text have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GeneratedText:
    """A generated text: the fields that translations and generations have in common."""

    text: str
    score: float
    """The log-probability, in a beam search divided by length^length_penalty."""
    stopped: str
    """Why generation stopped: `end`, `length`, `text`, `repeat` or `no_token` (see `StopReason`)."""
    max_new_tokens: int = 0
    """Maximum number of new tokens."""
    truncated: int = 0
    """Number of input tokens that were removed because the input was too long for the network."""
    chunks: int = 1
    """Number of chunks that the input was split into because it was too long for the network."""
    tokens: tuple[str, ...] = ()
    """The new tokens, as the vocabulary spells them."""
    token_scores: tuple[float, ...] = ()
    """The log-probability of each token."""
    alternatives: tuple[GeneratedText, ...] = ()
    """The other results, best first, if `n_best` is greater than 1."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        values: dict[str, Any] = {
            "text": self.text,
            "score": round(self.score, 6),
            "stopped": self.stopped,
            "max_new_tokens": self.max_new_tokens,
            "truncated": self.truncated,
            "chunks": self.chunks,
            "tokens": list(self.tokens),
            "token_scores": [round(score, 6) for score in self.token_scores],
        }
        if self.alternatives:
            values["alternatives"] = [alternative.as_json() for alternative in self.alternatives]
        return values

    def as_lines(self) -> Sequence[str]:
        """Return the text; with alternatives, one line for each text, with its score."""
        if not self.alternatives:
            return [self.text]
        return [f"{each.score:.4f}\t{each.text}" for each in (self, *self.alternatives)]
