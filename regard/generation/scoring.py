"""Forced decoding: the log-probabilities of given outputs under a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.generation.inputs import Inputs, OverlongInput, check_generative, prepare_inputs
from regard.generation.search import log_probabilities
from regard.transformer.decoder_state import device_of, pack_tokens
from regard.transformer.interface import GenerativeNetwork, Reads


@dataclass(frozen=True, kw_only=True)
class SequenceScore:
    """The log-probabilities of an output."""

    token_scores: tuple[float, ...]
    """The log-probability of each token, given the tokens before it."""

    @property
    def score(self) -> float:
        """The log-probability of the whole output."""
        return sum(self.token_scores)


ScoringPair = tuple[Inputs, Sequence[int]]
"""An input and the output to score."""


def score(network: nn.Module, pairs: Iterable[ScoringPair], *, batch_size: int = 16) -> Iterator[SequenceScore]:
    """Score given outputs, in order: `score(network, [(Inputs([1, 15, 7]), [8, 2])])`."""
    generative, remaining = check_generative(network), enumerate(pairs)
    while batch := [_check_pair(generative, *pair) for pair in islice(remaining, batch_size)]:
        yield from _score_batch(generative, batch)


def _check_pair(network: GenerativeNetwork, index: int, pair: ScoringPair) -> ScoringPair:
    inputs, output = pair
    if len(output) == 0:
        raise ValueError(f"output {index + 1} is empty: nothing to score")
    prepared = prepare_inputs(network, index, inputs, None, OverlongInput.ERROR)
    prepare_inputs(network, index, Inputs([*inputs.prompt, *output[:-1]], inputs.source), 1, OverlongInput.ERROR)
    return prepared.inputs, output


@torch.inference_mode()
def _score_batch(network: GenerativeNetwork, batch: Sequence[ScoringPair]) -> list[SequenceScore]:
    if not network.scores_in_one_pass:
        return _score_incrementally(network, batch)
    sequences = [[*inputs.prompt, *output[:-1]] for inputs, output in batch]
    tokens, layout = pack_tokens(sequences, device_of(network))
    if network.reads is Reads.SOURCE_AND_TARGET:
        sources, source_layout = pack_tokens([inputs.source or () for inputs, _ in batch], tokens.device)
        packed_logits = network(sources, tokens, layout=source_layout, target_layout=layout).logits
    else:
        packed_logits = network(tokens, layout=layout).logits
    scores = []
    for (_, output), logits in zip(batch, packed_logits.split(list(layout.lengths)), strict=True):
        token_scores = _token_scores(logits[len(logits) - len(output) :], output)
        scores.append(SequenceScore(token_scores=tuple(token_scores.tolist())))
    return scores


def _score_incrementally(network: GenerativeNetwork, batch: Sequence[ScoringPair]) -> list[SequenceScore]:
    """Score token by token, for networks whose logits differ when they read all tokens in one forward pass."""
    scores = []
    for inputs, output in batch:
        state = network.new_decoder_state(None if inputs.source is None else [inputs.source])
        logits = [state.step([inputs.prompt]), *(state.step([[token]]) for token in output[:-1])]
        scores.append(SequenceScore(token_scores=tuple(_token_scores(torch.cat(logits), output).tolist())))
    return scores


def _token_scores(logits: Float[Tensor, "tokens vocabulary"], output: Sequence[int]) -> Float[Tensor, " tokens"]:
    indices = torch.tensor(list(output), device=logits.device)[:, None]
    return log_probabilities(logits).gather(1, indices)[:, 0].double()
