"""The results of decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.generation.sequence import StepAttention, TokenSequence
from regard.generation.stopping_criteria import StopReason


@dataclass(frozen=True, kw_only=True, eq=False)
class Hypothesis:
    """One generated sequence."""

    tokens: tuple[int, ...]
    """The new tokens, with the EOS token and without the prompt."""
    score: float
    """The score for ranking: the sum of the log-probabilities, in a beam search divided by length^length_penalty."""
    token_scores: tuple[float, ...]
    """The log-probability of each new token under the network, before logits processors."""
    stopped: StopReason
    """Why generation stopped."""
    attention: tuple[StepAttention, ...] | None = None
    """With `capture`: the attention weights of the step that generated each token, by address: heads × keys."""

    def mean_attention(
        self, address: str | None = None, heads: Sequence[int] | None = None
    ) -> Float[Tensor, "target source"]:
        """Return the cross-attention weights of all new tokens, averaged over the heads.

        `address` is one of the captured addresses (default: the first); `heads` restricts the average to some heads.
        """
        if not self.attention:
            raise ValueError("attention weights were not captured: pass DecodingOptions(capture=[address])")
        address = address or next(iter(self.attention[0]))
        if address not in self.attention[0]:
            raise ValueError(f"{address!r} was not captured; captured: {', '.join(self.attention[0])}")
        weights = [step[address] for step in self.attention]
        if len({each.shape for each in weights}) > 1:
            raise ValueError(f"{address!r} is not a cross-attention: its number of keys grows with each step")
        return torch.stack([(each if heads is None else each[list(heads)]).mean(dim=0) for each in weights])


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodingResult:
    """The hypotheses of one input. `tokens`, `score` and so on are those of the first hypothesis: in
    a beam search, the best."""

    index: int
    """Index of the input, from 0."""
    hypotheses: tuple[Hypothesis, ...]
    """Beam search: sorted by score, best first. Random sampling: in the order of the samples."""
    max_new_tokens: int
    """Maximum number of new tokens for this input."""
    truncated: int = 0
    """Number of tokens that were removed from the input."""

    @property
    def best(self) -> Hypothesis:
        """The first hypothesis."""
        return self.hypotheses[0]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The new tokens."""
        return self.best.tokens

    @property
    def score(self) -> float:
        """The score for ranking."""
        return self.best.score

    @property
    def token_scores(self) -> tuple[float, ...]:
        """The log-probability of each new token."""
        return self.best.token_scores

    @property
    def stopped(self) -> StopReason:
        """Why generation stopped."""
        return self.best.stopped

    @property
    def attention(self) -> tuple[StepAttention, ...] | None:
        """With `capture`: the attention weights of each step."""
        return self.best.attention


def make_hypothesis(sequence: TokenSequence, stopped: StopReason, score: float) -> Hypothesis:
    """Return the hypothesis of a finished sequence."""
    return Hypothesis(
        tokens=tuple(sequence.new_tokens),
        score=score,
        token_scores=tuple(sequence.token_scores),
        stopped=stopped,
        attention=sequence.attention[: sequence.num_new_tokens] if sequence.attention else None,
    )
