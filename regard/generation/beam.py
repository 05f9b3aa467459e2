"""Beam search: follow the `beam` most likely partial sequences of each input in parallel.

    step 1            step 2            step 3
    the      -0.4     the cat   -0.9    the cat sat    -1.1     `beam` active sequences, the most likely first
    a        -1.2     a cat     -1.9    the cat slept  -1.6
    (eos)    -3.0     the dog   -2.2    the cat (eos)  -2.4     finished hypotheses, with length-normalized scores

The search of an input stops when no active sequence can beat, or is expected to beat, the finished hypotheses
(`EarlyStopping`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from regard.generation.logits_processors import apply_processors, only_masks
from regard.generation.result import Hypothesis, make_hypothesis
from regard.generation.search import Logits, SearchState, StepOptions
from regard.generation.sequence import TokenSequence
from regard.generation.stopping_criteria import StoppingCriterion, StopReason
from regard.generation.topk import Candidate, beam_candidates, logsumexp_and_block_max

MAX_BEAM = 1000
"""A larger beam takes memory that no machine has, and finds worse texts."""
MAX_LENGTH_PENALTY = 50
"""Beyond it, length ** length_penalty overflows."""


class EarlyStopping(Enum):
    """When to stop a beam search that has `beam` finished hypotheses; the values are transformers' `early_stopping`."""

    WHEN_FULL = True
    """As soon as there are `beam` finished hypotheses."""
    HEURISTIC = False
    """When the best active sequence, at its present length, scores no better than the worst finished hypothesis (the
    default)."""
    NEVER = "never"
    """The same, but the active sequence is scored at the length that is best for it: slower, and exact for a positive
    length penalty."""


@dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """Beam search. Finished hypotheses are ranked by log-probability / length^length_penalty."""

    beam: int = 4
    """Number of sequences followed for each input."""
    length_penalty: float = 1.0
    """Exponent of the length: 0 is no normalization, values above 1 favour longer outputs."""
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC
    n_best: int = 1
    """Number of hypotheses returned for each input."""
    num_samples = 1

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam:
            raise ValueError(
                f"n_best must be between 1 and beam={self.beam}, found n_best={self.n_best}: "
                "increase beam or reduce n_best"
            )

        if self.beam > MAX_BEAM:
            raise ValueError(f"the beam size must be at most {MAX_BEAM:,}, found {self.beam:,}")
        if not abs(self.length_penalty) <= MAX_LENGTH_PENALTY:
            raise ValueError(
                f"length_penalty must be between -{MAX_LENGTH_PENALTY} and {MAX_LENGTH_PENALTY}, found "
                f"{self.length_penalty}"
            )

    def init_state(self, sequence: TokenSequence, seed_key: str) -> BeamSearchState:
        """Return a state with one active sequence; the first step expands it to `beam`."""
        del seed_key
        return BeamSearchState(self, sequence)

    def step(self, states: Sequence[SearchState], logits: Logits, options: StepOptions) -> None:
        """Extend the active sequences of every input by one token."""
        sequences = [sequence for state in states for sequence in state.sequences]
        logsumexp, block_max = logsumexp_and_block_max(logits)
        masks_only = only_masks(options.logits_processors)
        processed = apply_processors(options.logits_processors, logits if masks_only else logits - logsumexp, sequences)
        # Enough candidates that `beam` of them stay active even if every sequence could end with every EOS token.
        k = max(2, 1 + options.num_eos_tokens) * self.beam
        offset, prefix_scores = logsumexp if masks_only else None, [each.cumulative_log_prob for each in sequences]
        candidates_by_input = beam_candidates(
            processed, offset, prefix_scores, logits, logsumexp, len(states), k, block_max if masks_only else None
        )
        for state, candidates in zip(states, candidates_by_input, strict=True):
            assert isinstance(state, BeamSearchState)
            state.advance(candidates, options.stopping_criterion)


class BeamSearchState:
    """The beam search of one input: its active sequences and its finished hypotheses."""

    def __init__(self, search: BeamSearch, sequence: TokenSequence) -> None:
        self.search = search
        self.sequences = [sequence]
        self.parents = [0]
        self.finished: list[Hypothesis] = []
        self.is_done = False

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """Return the `n_best` finished hypotheses."""
        return tuple(self.finished[: self.search.n_best])

    def stable_prefix(self) -> list[int]:
        """Return the longest common prefix of all hypotheses that may still win."""
        prefixes = (
            [sequence.new_tokens for sequence in self.sequences if sequence.cumulative_log_prob > -math.inf]
            if not self.is_done
            else []
        )
        prefixes += [list(each.tokens) for each in (self.finished[:1] if self.is_done else self.finished)]
        length = 0
        while all(len(tokens) > length for tokens in prefixes) and len({tokens[length] for tokens in prefixes}) == 1:
            length += 1
        return prefixes[0][:length]

    def advance(self, candidates: Iterable[Candidate], stopping_criterion: StoppingCriterion) -> None:
        """Continue with the best unfinished candidates; keep a finished one if it ranks among the first `beam`."""
        beam, num_finished, sequences = self.search.beam, len(self.finished), self.sequences
        active = list[tuple[int, TokenSequence]]()
        for rank, (total, parent, token, score) in enumerate(candidates):
            if total == -math.inf:
                break
            sequence = sequences[parent].fork(token, score, total)
            reason = stopping_criterion(sequence)
            if reason is None:
                active.append((parent, sequence))
                if len(active) == beam:
                    break
            elif rank < beam:
                self._finish(sequence, reason, sequence.num_new_tokens)
        if len(self.finished) > num_finished:
            self.finished.sort(key=lambda hypothesis: -hypothesis.score)
            del self.finished[beam:]
        self.is_done = not active or self.can_stop(active[0][1])
        if self.is_done and not self.finished:
            best = max(self.sequences, key=lambda sequence: sequence.cumulative_log_prob)
            self._finish(best, StopReason.NO_TOKEN, max(best.num_new_tokens, 1))
        if not self.is_done:
            self.assign_slots(active)

    def _finish(self, sequence: TokenSequence, reason: StopReason, length: int) -> None:
        score = self.length_normalized_score(sequence.cumulative_log_prob, length)
        self.finished.append(make_hypothesis(sequence, reason, score))

    def length_normalized_score(self, cumulative_log_prob: float, length: int) -> float:
        """Return the score that hypotheses are ranked by: log-probability / length^length_penalty."""
        return float(cumulative_log_prob / length**self.search.length_penalty)

    def can_stop(self, best: TokenSequence) -> bool:
        """Return whether the finished hypotheses suffice, given the best active sequence."""
        if len(self.finished) < self.search.beam:
            return False
        at_max_length = self.search.early_stopping is EarlyStopping.NEVER and self.search.length_penalty > 0
        reachable = self.length_normalized_score(
            best.cumulative_log_prob, best.max_new_tokens if at_max_length else best.num_new_tokens
        )
        return self.search.early_stopping is EarlyStopping.WHEN_FULL or reachable <= self.finished[-1].score

    def assign_slots(self, active: Sequence[tuple[int, TokenSequence]]) -> None:
        """Assign each active sequence, given with its parent, to a slot of the beam.

        A sequence takes the slot of its parent if that is free, so that few rows of the KV cache move. Slots that are
        left over are filled with dead sequences of log-probability -inf.
        """
        slots: list[TokenSequence | None] = [None] * self.search.beam
        parents, waiting = list(range(self.search.beam)), list[tuple[int, TokenSequence]]()
        for parent, sequence in active:
            if slots[parent] is None:
                slots[parent] = sequence
            else:
                waiting.append((parent, sequence))
        if waiting or len(active) < len(slots):
            remaining, best = iter(waiting), active[0][1]
            for slot, occupant in enumerate(slots):
                if occupant is None:
                    parents[slot], slots[slot] = next(remaining, None) or _dead_sequence(self.sequences, slot, best)
        self.parents, self.sequences = parents, [sequence for sequence in slots if sequence is not None]


def _dead_sequence(sequences: Sequence[TokenSequence], slot: int, template: TokenSequence) -> tuple[int, TokenSequence]:
    """Return a parent and a continuation of log-probability -inf, which no search will choose."""
    parent = min(slot, len(sequences) - 1)
    return parent, sequences[parent].fork(template.last_token, -math.inf, -math.inf)
