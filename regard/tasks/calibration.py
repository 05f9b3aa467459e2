"""Samples on which the error of a compiled network is measured (`engine.quantization_error`)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from regard.checkpoint.model_folder import ModelFolder
from regard.engine.quantization_error import CalibrationSample, QuantizationMetrics, measure_quantization_error
from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs
from regard.generation.scheduler import generate
from regard.generation.search import GreedySearch, RandomSampling
from regard.tasks.generation_config import GenerationConfig
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.interface import GenerativeNetwork, Predicts, Reads

NUM_SAMPLES, MAX_LENGTH, MAX_NEW_TOKENS = 64, 40, 24
"""Number of random samples, their maximum length, and the maximum number of tokens generated for each source."""
NUM_QUICK_SAMPLES = 16
"""Number of random samples when a model is quantized while it is loaded: a fraction of a second."""


def samples_from_texts(
    network: Any, tokenizer: Tokenizer, generation_config: GenerationConfig, texts: Iterable[str]
) -> list[CalibrationSample]:
    """Return the given texts as samples; for a generative encoder-decoder, the targets are its greedy outputs."""
    if not _reads_tokens(network):
        return []
    sequences = [ids for text in texts if (ids := tokenizer.encode(text).ids)]
    start = generation_config.decoder_start_token_id or 0
    return _make_samples(network, sequences, start, generation_config.eos_token_ids)


def random_samples(
    network: Any, *, bos_token_id: int | None = None, count: int = NUM_SAMPLES, seed: int = 0
) -> list[CalibrationSample]:
    """Return samples for a network without texts: outputs sampled from a decoder, random tokens for other networks.

    A decoder continues its BOS token; without one, a random token, after which its predictions are less certain than on
    real texts. The list is empty if the network does not read tokens.
    """
    if not _reads_tokens(network):
        return []
    source, target = network.limits
    rng, vocabulary = random.Random(seed), (source or target).vocabulary
    # A network without a cache reads everything again for each sampled token, which takes long.
    if _is_generative(network) and network.reads is Reads.TOKENS and network.scores_in_one_pass:
        samples_per_prompt = 1 if bos_token_id is None else count
        prompts = [[rng.randrange(vocabulary)] for _ in range(count)] if bos_token_id is None else [[bos_token_id]]
        search = RandomSampling(seed=seed, num_samples=samples_per_prompt)
        options = DecodingOptions(search=search, eos_token_ids=(), max_new_tokens=MAX_LENGTH)
        results = generate(network, [Inputs(prompt) for prompt in prompts], options)
        return [
            CalibrationSample([*prompt, *hypothesis.tokens])
            for prompt, result in zip(prompts, results, strict=True)
            for hypothesis in result.hypotheses
        ]
    sequences = [[rng.randrange(vocabulary) for _ in range(rng.randint(4, MAX_LENGTH))] for _ in range(count)]
    return _make_samples(network, sequences, 0, ())


def bos_token_id(folder: ModelFolder) -> int | None:
    """Return the BOS token in the generation config or the config of a folder; None if there is none."""
    for values in (folder.generation_config, folder.config):
        if isinstance(values.get("bos_token_id"), int):
            return int(values["bos_token_id"])
    return None


def measure(
    network: Any, compiled: Any, samples: Sequence[CalibrationSample], dataset: str
) -> QuantizationMetrics | None:
    """Return the quantization error, None if it cannot be measured on such samples.

    A head may need a token that is not among the random ones.
    """
    if not samples:
        return None
    try:
        return measure_quantization_error(network, compiled, samples, dataset)
    except ValueError:
        return None


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
