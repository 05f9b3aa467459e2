"""Texts to measure on what a network loses by being prepared (`engine.quality`)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from torch import nn

from regard.engine.quantization_error import Probe
from regard.generation.decoding_options import Settings
from regard.generation.inputs import Given, rooms
from regard.generation.scheduler import generate
from regard.generation.search import Greedy, Sample
from regard.tasks.generation_config import Habits
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer import config
from regard.transformer.embedding import Tokens
from regard.transformer.network import DecoderOnly, EncoderDecoder, EncoderOnly
from regard.transformer.two_stream import TwoStream

COUNT, LONGEST, WRITTEN = 64, 40, 24
"""How many texts are drawn, how long they become, and how much is written to each source."""

Reader = EncoderOnly | DecoderOnly | TwoStream | EncoderDecoder
"""Networks that read rows of tokens."""


def of_texts(network: nn.Module, tokenizer: Tokenizer, habits: Habits, texts: Iterable[str]) -> list[Probe]:
    """These texts, and what the network writes to them where it has an encoder and a decoder."""
    if not isinstance(network, Reader):
        return []
    rows = [ids for text in texts if (ids := tokenizer.encode(text).ids)]
    return _probes(network, rows, habits.start or 0, habits.end)


def drawn(network: nn.Module, seed: int = 0) -> list[Probe]:
    """What can be measured on without texts: what a decoder writes by itself, for others tokens by chance.

    Empty where a network reads something else.
    """
    if not isinstance(network, Reader):
        return []
    embedding = network.source if isinstance(network, EncoderDecoder) else network.embedding
    if not isinstance(embedding.tokens, Tokens):
        return []
    draw, vocabulary = random.Random(seed), len(embedding.tokens.weight)
    if isinstance(network, DecoderOnly) and _writes(network):
        begun = [Given([draw.randrange(vocabulary)]) for _ in range(COUNT)]
        results = generate(network, begun, Settings(search=Sample(seed=seed), end=(), limit=LONGEST))
        return [Probe([*given.prompt, *result.tokens]) for given, result in zip(begun, results, strict=True)]
    rows = [[draw.randrange(vocabulary) for _ in range(draw.randint(4, LONGEST))] for _ in range(COUNT)]
    return _probes(network, rows, 0, ())


def _probes(network: nn.Module, rows: Sequence[Sequence[int]], start: int, end: Sequence[int]) -> list[Probe]:
    longest = _longest(network)
    rows = [row[:longest] for row in rows]
    if not isinstance(network, EncoderDecoder):
        return [Probe(row) for row in rows]
    if not _writes(network):  # what it is made for: BART's classifier reads a text on both sides
        return [Probe(row, row) for row in rows]
    settings = Settings(search=Greedy(), end=end, limit=WRITTEN)
    written = generate(network, [Given([start], row) for row in rows], settings)
    return [Probe([start, *result.tokens], row) for row, result in zip(rows, written, strict=True)]


def _writes(network: Reader) -> bool:
    head = getattr(network.config, "head", None)
    return isinstance(head, config.LanguageModel | config.AdaptiveLanguageModel | config.TwoHeads)


def _longest(network: nn.Module) -> int | None:
    if isinstance(network, DecoderOnly | EncoderDecoder):
        return next((room.learnt for room in rooms(network) if room is not None and room.learnt), None)
    position = getattr(getattr(network, "embedding", None), "position", None)
    length = getattr(position, "length", None)
    return length if isinstance(length, int) else None
