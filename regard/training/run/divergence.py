"""When numbers go wrong: at which step, and in which part of the network it began."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.training.run.state import Progress

MEMORY = 0.95
"""How much of the smoothed loss is kept at each step."""
PATIENCE = 100
"""Steps before anything is called divergence."""


class DivergenceError(ValueError):
    """A run whose loss is no number any more, or has left all bounds."""


def observe(progress: Progress, loss: float) -> bool:
    """Follow the loss. False where it has left all bounds: half as much again as the lowest it was, and 1 more."""
    old = loss if progress.smooth is None else progress.smooth
    progress.smooth = MEMORY * old + (1 - MEMORY) * loss
    if progress.step < PATIENCE:
        return True
    if progress.lowest is None or progress.smooth < progress.lowest:
        progress.lowest, progress.lowest_step = progress.smooth, progress.step
    return progress.smooth <= 1.5 * progress.lowest + 1


def where(network: nn.Module, compute: Callable[[], Tensor]) -> str:
    """Compute a loss again, part by part, and say where the numbers go wrong first."""
    for name, value in network.named_parameters():
        if not value.isfinite().all():
            return f"the parameters of {name.rpartition('.')[0]} are not finite ({name})"
    found: list[str] = []
    handles = [module.register_forward_hook(_listener(name, found)) for name, module in network.named_modules() if name]
    try:
        loss = compute()
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return f"it began in {found[0]}, whose output is not finite though its input and parameters are"
    if not loss.isfinite():
        return "every part of the network gives finite numbers: the loss itself does not"
    return _backward(network, loss)


def largest(network: nn.Module) -> str:
    """The part with the largest gradient, by its address."""
    norms = {name: float(value.grad.norm()) for name, value in network.named_parameters() if value.grad is not None}
    name = max(norms, key=lambda one: norms[one] if math.isfinite(norms[one]) else math.inf)
    return name.rpartition(".")[0]


def _backward(network: nn.Module, loss: Tensor) -> str:
    """Gradients flow from the head to the embeddings: the last parameter that has a wrong one is where it began."""
    for value in network.parameters():
        value.grad = None
    torch.autograd.backward(loss)
    wrong = [name for name, value in network.named_parameters() if _is_wrong(value.grad)]
    if wrong:
        return (
            f"it began on the way back, in {wrong[-1].rpartition('.')[0]}, whose gradient is not finite ({wrong[-1]})"
        )
    return "it does not happen again when the same batch is computed alone"


def _is_wrong(gradient: Tensor | None) -> bool:
    return gradient is not None and not bool(gradient.isfinite().all())


def _listener(name: str, found: list[str]) -> Callable[[nn.Module, Any, Any], None]:
    def listen(module: nn.Module, given: Any, output: Any) -> None:
        del module
        if not found and not all(map(_healthy, _tensors(output))) and all(map(_healthy, _tensors(given))):
            found.append(name)

    return listen


def _healthy(x: Tensor) -> bool:
    """No NaN, and nothing without end; minus infinity is how masks are written."""
    return not x.is_floating_point() or bool((x < torch.inf).all())


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in what a module takes or gives."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _tensors([getattr(value, one.name) for one in dataclasses.fields(value)])
