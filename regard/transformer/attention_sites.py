"""The activations of an attention that can be captured (`activation_capture.py`), and the hooks that record them.

weights         softmax(query·keyᵀ·scale + bias)                        heads × queries × keys
query           as the kernel reads it, after rotary positions          heads × queries × head_dim
key value       likewise; with a KV cache, of all tokens in it          key/value heads × keys × head_dim
output          output of the attention, before the residual            queries × model
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.transformer.attention_kernel import AttentionKernel, attention_weights

if TYPE_CHECKING:
    from regard.transformer.attention import AttentionContext, EncoderOutput, MultiHeadAttention

SITES = ("weights", "query", "key", "value", "output")
RowLengths = tuple[tuple[int, ...], int]
"""For a row of the kernel: the lengths of its query sequences (several beams may share a source), and the number of
keys. A padded tensor may hold more of both."""


def register_hooks(attention: MultiHeadAttention, activations: Mapping[str, list[Tensor]]) -> Iterator[RemovableHandle]:
    """Hook the attention for the lengths of its sequences, its kernel and its output for the activations."""
    lengths: list[RowLengths] = []
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
            if site in activations:
                with torch.no_grad():
                    activations[site].extend(_per_sequence(site, compute().detach(), rows))

    def after_output(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        del args
        activations["output"].extend(torch.split(output.detach(), query_lengths))
        query_lengths.clear()

    yield attention.register_forward_pre_hook(before_attention, with_kwargs=True)
    yield attention.kernel.register_forward_hook(after_kernel)
    if "output" in activations:
        yield attention.output.register_forward_hook(after_output)


def _per_sequence(site: str, values: Tensor, rows: list[RowLengths]) -> list[Tensor]:
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
) -> list[RowLengths]:
    """Return the lengths of each row of the kernel."""
    layout = context.layout
    if encoder_output is not None:
        copies = encoder_output.copies
        shared = [layout.lengths[first : first + copies] for first in range(0, layout.batch_size, copies)]
        return list(zip(shared, encoder_output.layout.lengths, strict=True))
    past = layout.start_positions if cache is not None else (0,) * layout.batch_size
    return [((new,), old + new) for old, new in zip(past, layout.lengths, strict=True)]
