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

from regard.transformer.attention import MultiHeadAttention
from regard.transformer.kernels import Kernel, weights
from regard.transformer.mask import Visible

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
    handles = [_listen(network.get_submodule(address), collected) for address, collected in seen.items()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _listen(attention: nn.Module, collected: list[Tensor]) -> Any:
    def listen(kernel: Kernel, asked: tuple[Any, ...], answer: Tensor) -> None:
        del answer
        query, key, _, visible, bias = asked
        with torch.no_grad():
            for row in weights(query, key, kernel.scale, visible, bias):
                collected.append(row)
            _cut(collected, visible, len(query))

    assert isinstance(attention, MultiHeadAttention)
    return attention.kernel.register_forward_hook(listen)


def _cut(collected: list[Tensor], visible: Visible, rows: int) -> None:
    """Cut off the keys behind the end of each row: places of a cache that the row does not fill."""
    if not isinstance(visible, Tensor):
        return
    used = visible.flatten(1, 2).any(dim=1).expand(rows, -1)
    for row, places in zip(range(-rows, 0), used, strict=True):
        end = int(places.nonzero()[-1]) + 1 if bool(places.any()) else 0
        collected[row] = collected[row][:, :, :end]
