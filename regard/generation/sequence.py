"""A sequence during decoding, as logits processors, stopping criteria and search strategies see it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

from jaxtyping import Float
from torch import Generator, Tensor

StepAttention = Mapping[str, Float[Tensor, "_ _"]]
"""Attention weights of the step that generated one token, by the address of the attention: heads × keys."""


class TokenSequence:
    """The tokens of one sequence: the prompt, followed by the new tokens, with their scores.

    A beam search forks every sequence at every step, and each fork has all earlier tokens. So tokens and scores are
    stored in `array`s, which are copied as one block of memory; copying a list touches every element. Values that are
    needed for every sequence at every step are attributes, not properties.
    """

    __slots__ = (
        "_token_scores",
        "_tokens",
        "attention",
        "cumulative_log_prob",
        "generator",
        "last_token",
        "max_new_tokens",
        "num_new_tokens",
        "prompt_length",
    )

    def __init__(self, tokens: Iterable[int], prompt_length: int, max_new_tokens: int) -> None:
        self._tokens, self._token_scores = array("q", tokens), array("d")
        self.prompt_length = prompt_length
        """Number of prompt tokens: a prompt, or the decoder start token with a prefix of the target."""
        self.last_token: int = self._tokens[-1] if self._tokens else -1
        """The last token, or -1 if there is none."""
        self.num_new_tokens = len(self._tokens) - prompt_length
        """Number of new tokens."""
        self.max_new_tokens = max_new_tokens
        """Maximum number of new tokens."""
        self.cumulative_log_prob = 0.0
        """The sum of the log-probabilities that the search ranks by; in a beam search, after logits processors."""
        self.attention: tuple[StepAttention, ...] = ()
        """The captured attention weights of each step, if any."""
        self.generator: Generator | None = None
        """The random generator of the sequence, for random sampling."""

    def __repr__(self) -> str:
        return (
            f"TokenSequence(prompt={self.tokens[: self.prompt_length]}, new_tokens={self.new_tokens}, "
            f"max_new_tokens={self.max_new_tokens}, cumulative_log_prob={self.cumulative_log_prob})"
        )

    @property
    def tokens(self) -> list[int]:
        """All tokens, prompt and new ones, as a new list."""
        return self._tokens.tolist()

    @property
    def new_tokens(self) -> list[int]:
        """The new tokens, as a new list."""
        return self._tokens[self.prompt_length :].tolist()

    @property
    def token_scores(self) -> Sequence[float]:
        """The log-probability of each new token under the network, before logits processors."""
        return self._token_scores

    def last_new_tokens(self, count: int) -> list[int]:
        """Return the last new tokens, at most `count`."""
        return self._tokens[max(self.prompt_length, len(self._tokens) - count) :].tolist()

    def append(self, token: int, score: float) -> None:
        """Append a token in place."""
        self._tokens.append(token)
        self._token_scores.append(score)
        self.last_token = token
        self.num_new_tokens += 1
        self.cumulative_log_prob += score

    def fork(self, token: int, score: float, cumulative_log_prob: float) -> TokenSequence:
        """Return a copy with one more token; this sequence does not change, so it can be forked again."""
        copy = TokenSequence.__new__(TokenSequence)
        copy._tokens = tokens = self._tokens[:]
        tokens.append(token)
        copy._token_scores = scores = self._token_scores[:]
        scores.append(score)
        copy.prompt_length, copy.last_token, copy.num_new_tokens, copy.max_new_tokens = (
            self.prompt_length,
            token,
            self.num_new_tokens + 1,
            self.max_new_tokens,
        )
        copy.cumulative_log_prob, copy.attention, copy.generator = cumulative_log_prob, self.attention, None
        return copy
