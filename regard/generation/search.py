"""Search strategies: which token to append to each sequence.

A strategy has one state for each input and a `step`, which takes the logits of all sequences and extends every
input by one token. The result for an input is independent of the other inputs in the batch (`scheduler.py`). This
module has the strategies that follow one sequence for each input, greedy search and random sampling; `beam.py` has beam
search.
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

from regard.generation.logits_processors import LogitsProcessor, apply_processors, only_masks
from regard.generation.result import Hypothesis, make_hypothesis
from regard.generation.sequence import TokenSequence
from regard.generation.stopping_criteria import StoppingCriterion, StopReason
from regard.generation.topk import logsumexp, logsumexp_and_block_max, topk

Logits = Float[Tensor, "batch vocabulary"]


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The options of one decoding step, the same for all inputs."""

    logits_processors: Sequence[LogitsProcessor]
    """Applied to the logits, in this order."""
    stopping_criterion: StoppingCriterion
    """When a sequence is finished."""
    num_eos_tokens: int
    """Number of EOS tokens."""


@runtime_checkable
class SearchState(Protocol):
    """The search of one input."""

    sequences: list[TokenSequence]
    """The sequences that the network reads next, the same number for every input."""
    parents: list[int]
    """For each sequence the index of the sequence of the previous step that it extends."""

    @property
    def is_done(self) -> bool:
        """Whether the search is finished."""

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """Return the results, sorted by score, best first."""

    def stable_prefix(self) -> list[int]:
        """Return the new tokens that can no longer change."""


@runtime_checkable
class SearchStrategy(Protocol):
    """How to search for the output of an input."""

    @property
    def beam(self) -> int:
        """Number of sequences for each input."""

    @property
    def num_samples(self) -> int:
        """Number of independent outputs for each input."""

    def init_state(self, sequence: TokenSequence, seed_key: str) -> SearchState:
        """Return the state of an input that has no new tokens yet.

        `seed_key` identifies the input and the sample: random sampling derives its random generator from it.
        """

    def step(self, states: Sequence[SearchState], logits: Logits, options: StepOptions) -> None:
        """Extend all inputs by one token. `logits` has one row for each sequence; it may be overwritten."""


class SingleSequenceState:
    """The state of a search that follows one sequence."""

    def __init__(self, sequence: TokenSequence) -> None:
        self.sequences = [sequence]
        self.parents = [0]
        self.stopped: StopReason | None = None

    @property
    def is_done(self) -> bool:
        """Whether the sequence is finished."""
        return self.stopped is not None

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """Return the sequence as the only hypothesis."""
        assert self.stopped is not None
        return (make_hypothesis(self.sequences[0], self.stopped, self.sequences[0].cumulative_log_prob),)

    def stable_prefix(self) -> list[int]:
        """Return all new tokens."""
        return self.sequences[0].new_tokens


@dataclass(frozen=True, kw_only=True)
class GreedySearch:
    """Choose the most likely token at every step (argmax)."""

    beam = 1
    num_samples = 1

    def init_state(self, sequence: TokenSequence, seed_key: str) -> SingleSequenceState:
        """Return a state of one sequence."""
        del seed_key
        return SingleSequenceState(sequence)

    def step(self, states: Sequence[SearchState], logits: Logits, options: StepOptions) -> None:
        """Append the most likely token to every sequence."""
        scores = StepScores(logits, options.logits_processors, [state.sequences[0] for state in states])
        tokens = topk(scores.processed_logits, 1, scores.block_max)[1][:, 0]
        append_tokens(states, scores, tokens, options.stopping_criterion)


MAX_SAMPLES = 1000
"""More samples of one input take memory that no machine has."""


@dataclass(frozen=True, kw_only=True)
class RandomSampling:
    """Sample each token from the distribution of the processed logits.

    The random generator depends only on the seed, the input and the index of the sample: the same input gives the same
    output, whatever other inputs are in the batch.
    """

    seed: int
    num_samples: int = 1
    """Number of independent samples for each input."""
    beam = 1

    def __post_init__(self) -> None:
        if not 1 <= self.num_samples <= MAX_SAMPLES:
            raise ValueError(f"num_samples must be between 1 and {MAX_SAMPLES:,}, found {self.num_samples:,}")

    def init_state(self, sequence: TokenSequence, seed_key: str) -> SingleSequenceState:
        """Return a state of one sequence with its own random generator."""
        key = hashlib.blake2b(f"{self.seed} {seed_key}".encode(), digest_size=8).digest()
        sequence.generator = torch.Generator().manual_seed(int.from_bytes(key, "big") >> 1)
        return SingleSequenceState(sequence)

    def step(self, states: Sequence[SearchState], logits: Logits, options: StepOptions) -> None:
        """Sample a token for every sequence."""
        sequences = [state.sequences[0] for state in states]
        scores = StepScores(logits, options.logits_processors, sequences)
        uniforms = torch.stack([torch.rand((), generator=each.generator, dtype=torch.float64) for each in sequences])
        tokens = sample_tokens(scores.processed_logits, uniforms.to(logits.device))
        append_tokens(states, scores, tokens, options.stopping_criterion)


def sample_tokens(logits: Logits, uniforms: Float[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """Sample one token for each row by inverting the cumulative distribution at a uniform number from [0, 1)."""
    cumulative = logits.softmax(dim=-1).nan_to_num().cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1]
    positions = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, positions[:, None], right=True)[:, 0].clamp(max=logits.shape[1] - 1)


class StepScores:
    """The logits of one step, before and after the logits processors."""

    def __init__(
        self, logits: Logits, processors: Sequence[LogitsProcessor], sequences: Sequence[TokenSequence]
    ) -> None:
        self.logits, (self.logsumexp, block_max) = logits, logsumexp_and_block_max(logits)
        masks_only = only_masks(processors)
        self.processed_logits = apply_processors(processors, logits if masks_only else logits.clone(), sequences)
        self.block_max = block_max if masks_only else None
        """Upper bounds of the processed logits, if they are known."""

    def token_scores(self, tokens: Int[Tensor, " batch"]) -> tuple[list[float], list[bool]]:
        """Return the log-probabilities of the chosen tokens under the network, and whether the processors mask them.

        Masking processors overwrite the logits, so the log-probability of a masked token may be -inf.
        """
        indices = tokens[:, None]
        scores: list[float] = (self.logits.gather(1, indices) - self.logsumexp)[:, 0].tolist()
        processed = (
            scores if self.processed_logits is self.logits else self.processed_logits.gather(1, indices)[:, 0].tolist()
        )
        return scores, [score == -math.inf for score in processed]


def log_probabilities(logits: Logits) -> Logits:
    """Return the log-softmax; raise a ValueError if the logits contain NaN."""
    return logits - logsumexp(logits)


def append_tokens(
    states: Sequence[SearchState],
    step_scores: StepScores,
    tokens: Int[Tensor, " batch"],
    stopping_criterion: StoppingCriterion,
) -> None:
    """Append the chosen token to every sequence; stop a sequence whose tokens are all masked."""
    scores, masked = step_scores.token_scores(tokens)
    for state, token, score, is_masked in zip(states, tokens.tolist(), scores, masked, strict=True):
        assert isinstance(state, SingleSequenceState)
        if is_masked:
            state.stopped = StopReason.NO_TOKEN
        else:
            state.sequences[0].append(token, score)
            state.stopped = stopping_criterion(state.sequences[0])
