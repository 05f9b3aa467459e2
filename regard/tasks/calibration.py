"""Samples on which the error of a compiled network is measured (`engine.quantization_error`)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from torch import nn

from regard.engine.quantization_error import CalibrationSample
from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs, length_limits
from regard.generation.scheduler import generate
from regard.generation.search import GreedySearch, RandomSampling
from regard.tasks.generation_config import GenerationConfig
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer import config
from regard.transformer.embedding import Tokens
from regard.transformer.network import DecoderOnly, EncoderDecoder, EncoderOnly
from regard.transformer.two_stream import TwoStream

NUM_SAMPLES, MAX_LENGTH, MAX_NEW_TOKENS = 64, 40, 24
"""Number of random samples, their maximum length, and the maximum number of tokens generated for each source."""

TokenNetwork = EncoderOnly | DecoderOnly | TwoStream | EncoderDecoder
"""Networks that read sequences of tokens."""


def samples_from_texts(
    network: nn.Module, tokenizer: Tokenizer, generation_config: GenerationConfig, texts: Iterable[str]
) -> list[CalibrationSample]:
    """Return the given texts as samples; for a generative encoder-decoder, the targets are its greedy outputs."""
    if not isinstance(network, TokenNetwork):
        return []
    sequences = [ids for text in texts if (ids := tokenizer.encode(text).ids)]
    start = generation_config.decoder_start_token_id or 0
    return _make_samples(network, sequences, start, generation_config.eos_token_ids)


def random_samples(network: nn.Module, seed: int = 0) -> list[CalibrationSample]:
    """Return samples for a network without texts: outputs sampled from a decoder, random tokens for other networks.

    The list is empty if the network does not read tokens.
    """
    if not isinstance(network, TokenNetwork):
        return []
    embedding = network.source if isinstance(network, EncoderDecoder) else network.embedding
    if not isinstance(embedding.tokens, Tokens):
        return []
    rng, vocabulary = random.Random(seed), len(embedding.tokens.weight)
    if isinstance(network, DecoderOnly) and _is_generative(network):
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
    network: nn.Module, sequences: Sequence[Sequence[int]], start: int, eos_token_ids: Sequence[int]
) -> list[CalibrationSample]:
    max_positions = _max_positions(network)
    sequences = [sequence[:max_positions] for sequence in sequences]
    if not isinstance(network, EncoderDecoder):
        return [CalibrationSample(sequence) for sequence in sequences]
    if not _is_generative(network):  # BART's classifier reads the same text in the encoder and in the decoder
        return [CalibrationSample(sequence, sequence) for sequence in sequences]
    options = DecodingOptions(search=GreedySearch(), eos_token_ids=eos_token_ids, max_new_tokens=MAX_NEW_TOKENS)
    results = generate(network, [Inputs([start], sequence) for sequence in sequences], options)
    return [
        CalibrationSample([start, *result.tokens], sequence)
        for sequence, result in zip(sequences, results, strict=True)
    ]


def _is_generative(network: TokenNetwork) -> bool:
    head = getattr(network.config, "head", None)
    return isinstance(head, config.LanguageModel | config.AdaptiveLanguageModel | config.TwoHeads)


def _max_positions(network: nn.Module) -> int | None:
    if isinstance(network, DecoderOnly | EncoderDecoder):
        limits = length_limits(network)
        return next((each.max_positions for each in limits if each is not None and each.max_positions), None)
    position = getattr(getattr(network, "embedding", None), "position", None)
    length = getattr(position, "length", None)
    return length if isinstance(length, int) else None
