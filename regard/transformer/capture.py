"""See what a network attends to.

    with watch(network, "decoder.blocks.3.attention") as seen:
        network(tokens)
    seen["decoder.blocks.3.attention"][row]      # heads × query × key, over the row's own tokens

The run itself is not changed: it goes through whatever kernel it would have used. The weights are computed beside it,
by the definition, and only for the layers that are watched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.transformer.attention import Looking, MultiHeadAttention, Source
from regard.transformer.attention_kernel import Kernel, weights

Seen = dict[str, list[Float[Tensor, "heads query key"]]]


def attentions(network: nn.Module) -> list[str]:
    """The addresses of all attentions of a network, from the first block to the last."""
    return [name for name, module in network.named_modules() if isinstance(module, MultiHeadAttention)]


@contextmanager
def watch(network: nn.Module, *addresses: str) -> Iterator[Seen]:
    """Collect the attention weights at these addresses (all of them, if none is given) while the block runs.

    The answer has one tensor for each row and call, in order: heads × queries × keys.
    """
    known = attentions(network)
    for address in addresses:
        if address not in known:
            raise ValueError(f"there is no attention at {address!r}; this network has {', '.join(known)}")
    seen: Seen = {address: [] for address in addresses or known}
    handles = [handle for address, rows in seen.items() for handle in _listen(network.get_submodule(address), rows)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _listen(attention: nn.Module, collected: list[Tensor]) -> Iterator[RemovableHandle]:
    """Learn from the attention how long its rows are, and from its kernel what they look like."""
    assert isinstance(attention, MultiHeadAttention)
    lengths: list[tuple[tuple[int, ...], int]] = []

    def called(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        lengths[:] = _lengths(*given[1:], **named)

    def asked(kernel: Kernel, given: tuple[Any, ...], answer: Tensor) -> None:
        del answer
        query, key, _, visible, bias = given
        with torch.no_grad():
            for row in weights(query, key, kernel.scale, visible, bias):
                queries, keys = lengths.pop(0) if lengths else ((row.shape[1],), row.shape[2])
                collected.extend(torch.split(row[:, : sum(queries), :keys], list(queries), dim=1))

    yield attention.register_forward_pre_hook(called, with_kwargs=True)
    yield attention.kernel.register_forward_hook(asked)


def _lengths(looking: Looking, source: Source | None = None, kept: object = None) -> list[tuple[tuple[int, ...], int]]:
    """How many queries (of one row, or of those that share a row of the source) look at how many keys.

    A rectangle may hold more: padding, or unfilled places of a cache.
    """
    rows = looking.rows
    if source is not None:
        shared = [rows.lengths[at : at + source.copies] for at in range(0, rows.batch, source.copies)]
        return list(zip(shared, source.rows.lengths, strict=True))
    before = rows.starts if kept is not None else (0,) * rows.batch
    keys = [old + new for old, new in zip(before, rows.lengths, strict=True)]
    return [((new,), seen) for new, seen in zip(rows.lengths, keys, strict=True)]
