"""What is given to a network that writes, how long it may be, and how long what is written may become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from torch import nn

from regard.generation.decoder_state import Writer
from regard.transformer import config

WITHOUT_END = 1024
"""How many tokens are written at most by a network that knows no end of its rows, unless a limit is given."""
TIMES_SOURCE, BESIDES = 4, 64
"""A target has at most 4 tokens for each of its source, and 64 besides, unless a limit is given."""


@dataclass(frozen=True)
class Given:
    """One input."""

    prompt: Sequence[int]
    """What the decoder begins with: a prompt; where there is a source, the token that starts a target, and perhaps the
    beginning of the target."""
    source: Sequence[int] | None = None
    """What the encoder reads, where the network has one."""


class TooLong(Enum):
    """What becomes of an input for which a network has too few positions."""

    REFUSE = auto()
    """An error."""
    CUT = auto()
    """The source loses tokens before its last, a prompt its first ones; the result says how many."""


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """An input that fits the network."""

    number: int
    """Which of the inputs, from 0."""
    given: Given
    limit: int
    """How many tokens may be written."""
    truncated: int
    """How many tokens were cut off."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """How long a row of a network may be."""

    vocabulary: int
    learnt: int | None
    """There are no positions beyond this one."""
    meant: int | None
    """The network was made for rows up to this length, but can read longer ones."""


def writer(network: nn.Module) -> Writer:
    """The network, if it can write."""
    if not isinstance(network, Writer):
        raise ValueError(f"a network of kind {type(network).__name__} cannot write: it has no decoder")
    head = getattr(network.config, "head", None)
    if not isinstance(head, config.LanguageModel | config.AdaptiveLanguageModel | config.TwoHeads):
        raise ValueError("this network cannot write: its head does not score words")
    if network.training:
        raise ValueError("the network is in training mode, in which it draws by chance: call network.eval() first")
    return network


def rooms(network: Writer) -> tuple[Room | None, Room]:
    """The room for the source, where there is one, and for what the decoder reads."""
    design = network.config
    if isinstance(design, config.EncoderDecoder):
        source = _room(design.source, design.encoder)
        return source, _room(design.target, design.decoder, source.vocabulary)
    assert isinstance(design, config.DecoderOnly | config.TwoStream)
    return None, _room(design.embedding, design.decoder if isinstance(design, config.DecoderOnly) else design.encoder)


def _room(embedding: config.Embedding, stack: config.Stack, shared: int = 0) -> Room:
    tokens, position = embedding.tokens, embedding.position
    vocabulary = tokens.vocabulary if isinstance(tokens, config.Tokens | config.AdaptiveTokens) else shared
    learnt = position.length if isinstance(position, config.Learned) else None
    meant = position.length if isinstance(position, config.Sinusoidal) else learnt
    if isinstance(stack.position, config.Rotary):
        meant = stack.position.length
    return Room(vocabulary=vocabulary, learnt=learnt, meant=meant)


def admit(network: Writer, number: int, given: Given, limit: int | None, too_long: TooLong) -> Admitted:
    """Check an input, and work out how much may be written."""
    for_source, for_target = rooms(network)
    name = f"input {number + 1}"
    _check_tokens(f"the prompt of {name}", given.prompt, for_target)
    cut = 0
    if for_source is None:
        if given.source is not None:
            raise ValueError(f"{name} has a source, but this network has no encoder: put all tokens into the prompt")
    elif given.source is None:
        raise ValueError(f"{name} has no source, but this network has an encoder: Given(prompt, source)")
    else:
        _check_tokens(f"the source of {name}", given.source, for_source)
        source, cut = _fit_source(name, given.source, for_source.learnt, too_long)
        given = replace(given, source=source)
    if for_target.learnt is not None and len(given.prompt) >= for_target.learnt:
        given, more = _fit_prompt(name, given, limit, for_target.learnt, too_long)
        cut += more
    return Admitted(number=number, given=given, limit=_limit(name, given, limit, for_target), truncated=cut)


def _check_tokens(name: str, tokens: Sequence[int], room: Room) -> None:
    if len(tokens) == 0:
        raise ValueError(f"{name} is empty: a network needs at least one token to begin with")
    if wrong := next((token for token in tokens if not 0 <= token < room.vocabulary), None):
        raise ValueError(f"{name} has token {wrong}, but the vocabulary has {room.vocabulary}, from 0")


def _fit_source(name: str, tokens: Sequence[int], room: int | None, too_long: TooLong) -> tuple[Sequence[int], int]:
    if room is None or len(tokens) <= room:
        return tokens, 0
    if too_long is TooLong.REFUSE:
        raise ValueError(
            f"the source of {name} has {len(tokens)} tokens, but the network has learnt {room} positions: "
            "split it, or have it cut with TooLong.CUT"
        )
    return [*tokens[: room - 1], tokens[-1]], len(tokens) - room


def _fit_prompt(name: str, given: Given, limit: int | None, room: int, too_long: TooLong) -> tuple[Given, int]:
    length = len(given.prompt)
    if too_long is TooLong.REFUSE or given.source is not None:
        raise ValueError(
            f"the prompt of {name} has {length} tokens and leaves no room to write: the network has learnt {room} "
            "positions. Shorten it, or have it cut with TooLong.CUT"
        )
    kept = room - min(limit or room // 2, room - 1)
    return replace(given, prompt=given.prompt[length - kept :]), length - kept


def _limit(name: str, given: Given, limit: int | None, room: Room) -> int:
    """How many tokens may be written: what is asked for, as far as there are positions; else what the network is made
    for and, where there is a source, what its length makes plausible."""
    if limit is not None and limit < 1:
        raise ValueError(f"at least one token must be allowed, found a limit of {limit}")
    left = None if room.learnt is None else room.learnt - len(given.prompt)
    if limit is not None:
        return limit if left is None else min(limit, left)
    most = WITHOUT_END if room.meant is None else room.meant - len(given.prompt)
    if most < 1:
        raise ValueError(
            f"the prompt of {name} has {len(given.prompt)} tokens, and the network is made for {room.meant}: "
            "shorten it, or say with a limit how much is to be written nevertheless"
        )
    if given.source is not None:
        most = min(most, TIMES_SOURCE * len(given.source) + BESIDES)
    return most
