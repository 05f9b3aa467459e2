"""Detect divergence, and find the module where the first NaN or infinity appears."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.training.run.state import TrainingProgress

LOSS_SMOOTHING = 0.95
"""Weight of the previous value in the smoothed loss."""
MIN_STEPS = 100
"""Steps before a rising loss counts as divergence."""
NOT_REPRODUCED = "computing the same batches alone gives finite values"


class DivergenceError(ValueError):
    """The loss is NaN or infinite, or has risen far above its minimum."""


def track_loss(progress: TrainingProgress, loss: float) -> bool:
    """Update the smoothed loss. Returns False if it exceeds 1.5 times its minimum plus 1."""
    previous = loss if progress.smoothed_loss is None else progress.smoothed_loss
    progress.smoothed_loss = LOSS_SMOOTHING * previous + (1 - LOSS_SMOOTHING) * loss
    if progress.step < MIN_STEPS:
        return True
    if progress.lowest_loss is None or progress.smoothed_loss < progress.lowest_loss:
        progress.lowest_loss, progress.lowest_loss_step = progress.smoothed_loss, progress.step
    return progress.smoothed_loss <= 1.5 * progress.lowest_loss + 1


def locate_nonfinite(network: nn.Module, compute_loss: Callable[[], Tensor]) -> str | None:
    """Compute a loss again with a hook on every module, and describe where the first non-finite value appears.

    Returns None if all outputs and gradients are finite.
    """
    for name, value in network.named_parameters():
        if not value.isfinite().all():
            return f"the parameters of {name.rpartition('.')[0]} are not finite ({name})"
    nonfinite: list[str] = []
    handles = [
        module.register_forward_hook(_output_check_hook(name, nonfinite))
        for name, module in network.named_modules()
        if name
    ]
    try:
        loss = compute_loss()
    finally:
        for handle in handles:
            handle.remove()
    if nonfinite:
        return f"first non-finite output in {nonfinite[0]} (its input and parameters are finite)"
    if not loss.isfinite():
        return "all module outputs are finite, but the loss is not"
    return _locate_nonfinite_gradient(network, loss)


def largest_gradient(network: nn.Module) -> str:
    """Return the address of the module with the largest gradient norm."""
    norms = {name: float(value.grad.norm()) for name, value in network.named_parameters() if value.grad is not None}
    largest = max(norms, key=lambda name: norms[name] if math.isfinite(norms[name]) else math.inf)
    return largest.rpartition(".")[0]


def _locate_nonfinite_gradient(network: nn.Module, loss: Tensor) -> str | None:
    """Find the first non-finite gradient: that of the last parameter, since backward runs from head to embeddings."""
    for value in network.parameters():
        value.grad = None
    torch.autograd.backward(loss)
    names = [name for name, value in network.named_parameters() if _has_nonfinite(value.grad)]
    return f"first non-finite gradient in {names[-1].rpartition('.')[0]} ({names[-1]})" if names else None


def _has_nonfinite(gradient: Tensor | None) -> bool:
    return gradient is not None and not bool(gradient.isfinite().all())


def _output_check_hook(name: str, nonfinite: list[str]) -> Callable[[nn.Module, Any, Any], None]:
    """Return a forward hook that adds `name` if it is the first module with finite inputs and a non-finite output."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        del module
        if (
            not nonfinite
            and not all(map(_is_finite_or_masked, _tensors(output)))
            and all(map(_is_finite_or_masked, _tensors(inputs)))
        ):
            nonfinite.append(name)

    return hook


def _is_finite_or_masked(x: Tensor) -> bool:
    """Whether a tensor has neither NaN nor +inf. Masks contain -inf."""
    return not x.is_floating_point() or bool((x < torch.inf).all())


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in the inputs or outputs of a module."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _tensors([getattr(value, field.name) for field in dataclasses.fields(value)])
