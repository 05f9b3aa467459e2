"""Capture activations of a forward pass by address.

    with capture(network, "decoder.blocks.3.attention.weights") as activations:
        network(tokens)
    activations["decoder.blocks.3.attention.weights"][0]      # heads × queries × keys of the first sequence

An address is the path of an attention module and a site in it:

    .weights        softmax(query·keyᵀ·scale + bias)                        heads × queries × keys
    .query          as the kernel reads it, after rotary positions          heads × queries × head_dim
    .key .value     likewise; with a KV cache, of all tokens in it          key/value heads × keys × head_dim
    .output         output of the attention, before the residual            queries × model

`*` matches one part of an address: `decoder.blocks.*.cross_attention.weights`. The default site is `.weights`.

The forward pass is not changed: it uses the kernel that it would have used. Weights are computed separately, by the
definition, and only for the attentions that are captured.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.transformer.attention import AttentionContext, EncoderOutput, MultiHeadAttention
from regard.transformer.attention_kernel import AttentionKernel, attention_weights

Activations = dict[str, list[Tensor]]
"""For each address one tensor per sequence and call, in order."""
SITES = ("weights", "query", "key", "value", "output")


def attention_addresses(network: nn.Module) -> list[str]:
    """The addresses of all attentions of a network, from the first block to the last."""
    return [name for name, module in network.named_modules() if isinstance(module, MultiHeadAttention)]


def capture_addresses(network: nn.Module) -> list[str]:
    """All addresses that can be captured, from the first block to the last."""
    return [f"{attention}.{site}" for attention in attention_addresses(network) for site in SITES]


@contextmanager
def capture(network: nn.Module, *addresses: str) -> Iterator[Activations]:
    """Collect the activations at these addresses while the `with` block runs.

    Without an address, the weights of all attentions are collected. Each address maps to one tensor per sequence and
    call, in order; tensors are detached.
    """
    sites = _resolve(network, addresses)
    activations: Activations = {address: [] for address in sites}
    handles: list[RemovableHandle] = []
    try:
        for attention in dict.fromkeys(attention for attention, _ in sites.values()):
            requested = {address: site for address, (owner, site) in sites.items() if owner == attention}
            collect = {
                site: [activations[address] for address in requested if requested[address] == site] for site in SITES
            }
            handles += _register_hooks(network.get_submodule(attention), collect)
        yield activations
    finally:
        for handle in handles:
            handle.remove()


def _resolve(network: nn.Module, patterns: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Expand addresses with `*`, and find the attention and the site of each."""
    attentions = {attention: (attention, "weights") for attention in attention_addresses(network)}
    sites = {f"{attention}.{site}": (attention, site) for attention in attentions for site in SITES}
    resolved: dict[str, tuple[str, str]] = {} if patterns else dict(attentions)
    for pattern in patterns:
        expression = re.compile(re.escape(pattern).replace(r"\*", r"[^.]+"))
        matches = {name: value for name, value in (attentions | sites).items() if expression.fullmatch(name)}
        if not matches:
            near = difflib.get_close_matches(pattern, [*attentions, *sites], 1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"there is no attention at {pattern!r}; this network has {', '.join(attentions)}, each with the sites "
                f"{', '.join(SITES)}{hint}"
            )
        resolved |= matches
    return resolved


def _register_hooks(attention: nn.Module, collect: dict[str, list[list[Tensor]]]) -> Iterator[RemovableHandle]:
    """Hook the attention for the lengths of its sequences, its kernel and its output for the activations."""
    assert isinstance(attention, MultiHeadAttention)
    lengths: list[tuple[tuple[int, ...], int]] = []
    query_lengths: list[int] = []

    def before_attention(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        lengths[:] = _query_key_lengths(*args[1:], **kwargs)
        query_lengths.clear()

    def after_kernel(kernel: AttentionKernel, args: tuple[Any, ...], output: Tensor) -> None:
        del output
        query, key, value, attention_mask, bias = args
        computed: dict[str, Callable[[], Tensor]] = {
            "weights": lambda: attention_weights(query, key, kernel.scale, attention_mask, bias),
            "query": lambda: query,
            "key": lambda: key,
            "value": lambda: value,
        }
        rows = [lengths.pop(0) if lengths else ((query.shape[2],), key.shape[2]) for _ in range(len(query))]
        query_lengths.extend(length for queries, _ in rows for length in queries)
        for site, compute in computed.items():
            if collect[site]:
                with torch.no_grad():
                    parts = _per_sequence(site, compute().detach(), rows)
                for target in collect[site]:
                    target.extend(parts)

    def after_output(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        del args
        for target in collect["output"]:
            target.extend(torch.split(output.detach(), query_lengths))
        query_lengths.clear()

    yield attention.register_forward_pre_hook(before_attention, with_kwargs=True)
    yield attention.kernel.register_forward_hook(after_kernel)
    if collect["output"]:
        yield attention.output.register_forward_hook(after_output)


def _per_sequence(site: str, values: Tensor, rows: list[tuple[tuple[int, ...], int]]) -> list[Tensor]:
    """Split inputs or outputs of a kernel into sequences, without padding and without unfilled slots of a KV cache."""
    parts: list[Tensor] = []
    for row, (queries, keys) in zip(values, rows, strict=True):
        match site:
            case "weights":
                parts += torch.split(row[:, : sum(queries), :keys], list(queries), dim=1)
            case "query":
                parts += torch.split(row[:, : sum(queries)], list(queries), dim=1)
            case _:
                parts += [row[:, :keys]] * len(queries)  # beams of one source share its keys and values
    return parts


def _query_key_lengths(
    context: AttentionContext, encoder_output: EncoderOutput | None = None, cache: object = None
) -> list[tuple[tuple[int, ...], int]]:
    """For each row of the kernel: the lengths of its query sequences (several beams may share a source), and the number
    of keys. A padded tensor may hold more of both.
    """
    layout = context.layout
    if encoder_output is not None:
        copies = encoder_output.copies
        shared = [layout.lengths[first : first + copies] for first in range(0, layout.batch_size, copies)]
        return list(zip(shared, encoder_output.layout.lengths, strict=True))
    past = layout.start_positions if cache is not None else (0,) * layout.batch_size
    return [((new,), old + new) for old, new in zip(past, layout.lengths, strict=True)]
