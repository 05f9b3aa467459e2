"""The inputs of generation: checks, truncation, and the maximum number of new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from regard.transformer.interface import GenerativeNetwork, LengthLimits, Predicts

DEFAULT_MAX_NEW_TOKENS = 1024
"""Default of `max_new_tokens` for a network without a maximum length."""
MAX_LEN_A, MAX_LEN_B = 4, 64
"""Default of `max_new_tokens` for an encoder-decoder: at most 4 × source length + 64 (fairseq: `max_len_a/b`)."""


@dataclass(frozen=True)
class Inputs:
    """The token ids of one input."""

    prompt: Sequence[int]
    """The first tokens of the decoder: a prompt, or for an encoder-decoder the decoder start token, optionally followed
    by a prefix of the target."""
    source: Sequence[int] | None = None
    """The tokens of the encoder, if the network has one."""


class OverlongInput(Enum):
    """How to handle an input that has more tokens than the network has positions."""

    ERROR = auto()
    """Raise a ValueError."""
    TRUNCATE = auto()
    """Truncate a source at its end but keep its last token, and a prompt at its start. `DecodingResult.truncated`
    is the number of removed tokens."""


@dataclass(frozen=True, kw_only=True)
class PreparedInputs:
    """An input that was checked and, if necessary, truncated."""

    index: int
    """Index of the input, from 0."""
    inputs: Inputs
    max_new_tokens: int
    """Maximum number of generated tokens."""
    truncated: int
    """Number of tokens that were removed."""


def check_generative(network: object) -> GenerativeNetwork:
    """Return the network; raise a ValueError if it cannot generate."""
    if not isinstance(network, GenerativeNetwork):
        raise ValueError(
            f"{type(network).__name__} cannot generate: it has no decoder "
            "(expected the members of regard.transformer.interface.GenerativeNetwork)"
        )
    if Predicts.NEXT_TOKEN not in network.predicts:
        raise ValueError("this network cannot generate: it has no language modelling head")
    if network.training:
        raise ValueError("the network is in training mode (dropout is active): call network.eval() first")
    return network


def prepare_inputs(
    network: GenerativeNetwork, index: int, inputs: Inputs, max_new_tokens: int | None, overlong_input: OverlongInput
) -> PreparedInputs:
    """Check one input, truncate it if that is allowed, and compute its maximum number of new tokens."""
    source_limits, target_limits = network.limits
    name = f"input {index + 1}"
    _check_tokens(f"the prompt of {name}", inputs.prompt, target_limits)
    truncated = 0
    if source_limits is None:
        if inputs.source is not None:
            raise ValueError(f"{name} has a source, but this network has no encoder: put all tokens into the prompt")
    elif inputs.source is None:
        raise ValueError(f"{name} has no source, but this network has an encoder: pass Inputs(prompt, source)")
    else:
        _check_tokens(f"the source of {name}", inputs.source, source_limits)
        source, truncated = _truncate_source(name, inputs.source, source_limits.max_positions, overlong_input)
        inputs = replace(inputs, source=source)
    if target_limits.max_positions is not None and len(inputs.prompt) >= target_limits.max_positions:
        inputs, removed = _truncate_prompt(name, inputs, max_new_tokens, target_limits.max_positions, overlong_input)
        truncated += removed
    return PreparedInputs(
        index=index,
        inputs=inputs,
        max_new_tokens=_max_new_tokens(name, inputs, max_new_tokens, target_limits),
        truncated=truncated,
    )


def _check_tokens(name: str, tokens: Sequence[int], limits: LengthLimits) -> None:
    if len(tokens) == 0:
        raise ValueError(f"{name} is empty: at least one token is required")
    if invalid := next((token for token in tokens if not 0 <= token < limits.vocabulary), None):
        raise ValueError(f"{name} has token id {invalid}, outside the vocabulary of {limits.vocabulary} tokens")


def _truncate_source(
    name: str, tokens: Sequence[int], max_positions: int | None, overlong_input: OverlongInput
) -> tuple[Sequence[int], int]:
    if max_positions is None or len(tokens) <= max_positions:
        return tokens, 0
    if overlong_input is OverlongInput.ERROR:
        raise ValueError(
            f"the source of {name} has {len(tokens)} tokens, but the network has {max_positions} positions: "
            "split it, or pass overlong_input=OverlongInput.TRUNCATE"
        )
    return [*tokens[: max_positions - 1], tokens[-1]], len(tokens) - max_positions


def _truncate_prompt(
    name: str, inputs: Inputs, max_new_tokens: int | None, max_positions: int, overlong_input: OverlongInput
) -> tuple[Inputs, int]:
    length = len(inputs.prompt)
    if overlong_input is OverlongInput.ERROR or inputs.source is not None:
        raise ValueError(
            f"the prompt of {name} has {length} tokens and the network only {max_positions} positions, so nothing "
            "can be generated: shorten it"
            + ("" if inputs.source is not None else ", or pass overlong_input=OverlongInput.TRUNCATE")
        )
    new_length = max_positions - min(max_new_tokens or max_positions // 2, max_positions - 1)
    return replace(inputs, prompt=inputs.prompt[length - new_length :]), length - new_length


def _max_new_tokens(name: str, inputs: Inputs, max_new_tokens: int | None, limits: LengthLimits) -> int:
    """Return the maximum number of new tokens.

    A given number is limited only by the positions that are left. The default is the rest of the context length and,
    for an encoder-decoder, at most `MAX_LEN_A` × source length + `MAX_LEN_B`.
    """
    if max_new_tokens is not None and max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, found {max_new_tokens}")
    remaining = None if limits.max_positions is None else limits.max_positions - len(inputs.prompt)
    if max_new_tokens is not None:
        return max_new_tokens if remaining is None else min(max_new_tokens, remaining)
    default = DEFAULT_MAX_NEW_TOKENS if limits.context_length is None else limits.context_length - len(inputs.prompt)
    if default < 1:
        raise ValueError(
            f"the prompt of {name} has {len(inputs.prompt)} tokens and the context length is {limits.context_length}: "
            "shorten it, or set max_new_tokens to generate beyond it"
        )
    if inputs.source is not None:
        default = min(default, MAX_LEN_A * len(inputs.source) + MAX_LEN_B)
    return default
