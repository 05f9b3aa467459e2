"""Samples on which the error of a compiled network is measured (`engine.quantization_error`)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from regard.engine.quantization_error import CalibrationSample
from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs
from regard.generation.scheduler import generate
from regard.generation.search import GreedySearch, RandomSampling
from regard.tasks.generation_config import GenerationConfig
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.interface import GenerativeNetwork, Predicts, Reads

NUM_SAMPLES, MAX_LENGTH, MAX_NEW_TOKENS = 64, 40, 24
"""Number of random samples, their maximum length, and the maximum number of tokens generated for each source."""


def samples_from_texts(
    network: Any, tokenizer: Tokenizer, generation_config: GenerationConfig, texts: Iterable[str]
) -> list[CalibrationSample]:
    """Return the given texts as samples; for a generative encoder-decoder, the targets are its greedy outputs."""
    if not _reads_tokens(network):
        return []
    sequences = [ids for text in texts if (ids := tokenizer.encode(text).ids)]
    start = generation_config.decoder_start_token_id or 0
    return _make_samples(network, sequences, start, generation_config.eos_token_ids)


def random_samples(network: Any, seed: int = 0) -> list[CalibrationSample]:
    """Return samples for a network without texts: outputs sampled from a decoder, random tokens for other networks.

    The list is empty if the network does not read tokens.
    """
    if not _reads_tokens(network):
        return []
    source, target = network.limits
    rng, vocabulary = random.Random(seed), (source or target).vocabulary
    # A network without a cache reads everything again for each sampled token, which takes long.
    if _is_generative(network) and network.reads is Reads.TOKENS and network.scores_in_one_pass:
        inputs = [Inputs([rng.randrange(vocabulary)]) for _ in range(NUM_SAMPLES)]
        results = generate(
            network,
            inputs,
            DecodingOptions(search=RandomSampling(seed=seed), eos_token_ids=(), max_new_tokens=MAX_LENGTH),
        )
        return [CalibrationSample([*each.prompt, *result.tokens]) for each, result in zip(inputs, results, strict=True)]
    sequences = [[rng.randrange(vocabulary) for _ in range(rng.randint(4, MAX_LENGTH))] for _ in range(NUM_SAMPLES)]
    return _make_samples(network, sequences, 0, ())


def _make_samples(
    network: Any, sequences: Sequence[Sequence[int]], start: int, eos_token_ids: Sequence[int]
) -> list[CalibrationSample]:
    limits = (side.max_positions for side in network.limits if side is not None and side.max_positions)
    max_positions = next(limits, None)
    sequences = [sequence[:max_positions] for sequence in sequences]
    if network.reads is Reads.TOKENS:
        return [CalibrationSample(sequence) for sequence in sequences]
    if not _is_generative(network):  # BART's classifier reads the same text in the encoder and in the decoder
        return [CalibrationSample(sequence, sequence) for sequence in sequences]
    options = DecodingOptions(search=GreedySearch(), eos_token_ids=eos_token_ids, max_new_tokens=MAX_NEW_TOKENS)
    results = generate(network, [Inputs([start], sequence) for sequence in sequences], options)
    return [
        CalibrationSample([start, *result.tokens], sequence)
        for sequence, result in zip(sequences, results, strict=True)
    ]


def _reads_tokens(network: Any) -> bool:
    return network.reads in (Reads.TOKENS, Reads.SOURCE_AND_TARGET)


def _is_generative(network: Any) -> bool:
    return isinstance(network, GenerativeNetwork) and Predicts.NEXT_TOKEN in network.predicts
