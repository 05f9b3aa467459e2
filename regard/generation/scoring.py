"""Forced decoding: how likely a network finds texts that somebody else wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.generation import decoder_state
from regard.generation.decoder_state import Writer, device_of, packed
from regard.generation.inputs import Given, TooLong, admit, writer
from regard.generation.search import log_probabilities
from regard.transformer.cache import Cache
from regard.transformer.network import DecoderOnly, EncoderDecoder
from regard.transformer.two_stream import TwoStream


@dataclass(frozen=True, kw_only=True)
class Scored:
    """How likely an output is."""

    token_scores: tuple[float, ...]
    """The log-probability of each token, given those before it."""

    @property
    def score(self) -> float:
        """The log-probability of the whole output."""
        return sum(self.token_scores)


Pair = tuple[Given, Sequence[int]]


def score(network: nn.Module, pairs: Iterable[Pair], *, rows_at_once: int = 16) -> Iterator[Scored]:
    """The log-probabilities of given outputs, in order: `score(network, [(Given([1, 15, 7]), [8, 2])])`."""
    able, remaining = writer(network), enumerate(pairs)
    while batch := [_checked(able, *pair) for pair in islice(remaining, rows_at_once)]:
        yield from _together(able, batch)


def _checked(network: Writer, number: int, pair: Pair) -> Pair:
    given, output = pair
    if len(output) == 0:
        raise ValueError(f"the output of input {number + 1} is empty: there is nothing to score")
    admitted = admit(network, number, given, None, TooLong.REFUSE)
    admit(network, number, Given([*given.prompt, *output[:-1]], given.source), 1, TooLong.REFUSE)
    return admitted.given, output


@torch.inference_mode()
def _together(network: Writer, batch: Sequence[Pair]) -> list[Scored]:
    if isinstance(network, TwoStream) or not isinstance(network.new_cache(), Cache):
        return _step_by_step(network, batch)
    whole = [[*given.prompt, *output[:-1]] for given, output in batch]
    tokens, rows = packed(whole, device_of(network))
    if isinstance(network, EncoderDecoder):
        sources, source_rows = packed([given.source or () for given, _ in batch], tokens.device)
        logits = network(sources, tokens, rows=source_rows, target_rows=rows).logits
    else:
        assert isinstance(network, DecoderOnly)
        logits = network(tokens, rows=rows).logits
    found = []
    for (_, output), said in zip(batch, logits.split(list(rows.lengths)), strict=True):
        found.append(Scored(token_scores=tuple(_scores(said[len(said) - len(output) :], output).tolist())))
    return found


def _step_by_step(network: Writer, batch: Sequence[Pair]) -> list[Scored]:
    """As it would be written: where what is read in one go is not what is read token by token."""
    found = []
    for given, output in batch:
        read = decoder_state.begin(network, None)
        logits = [read.read([given.prompt]), *(read.read([[token]]) for token in output[:-1])]
        found.append(Scored(token_scores=tuple(_scores(torch.cat(logits), output).tolist())))
    return found


def _scores(logits: Float[Tensor, "tokens vocabulary"], output: Sequence[int]) -> Float[Tensor, " tokens"]:
    at = torch.tensor(list(output), device=logits.device)[:, None]
    return log_probabilities(logits).gather(1, at)[:, 0].double()
