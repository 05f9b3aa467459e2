"""Muon (Jordan 2024): momentum made orthogonal.

The change of a matrix is its momentum with all singular values brought near to 1, so that no direction is learnt faster
than another. They are brought there by five steps of an iteration of Newton and Schulz, products of matrices only:

    X ← a·X + (b·A + c·A²)·X        with A = X·Xᵀ

torch has it too, always in bfloat16; on a CPU without such numbers a step of that takes some twenty times as long as a
step in float32. Here the products are in the numbers that training was asked to multiply in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Jordan's: they bring small values up fast, and large ones not quite to 1 but between 0.7 and 1.2 or so."""
STEPS = 5
EPSILON = 1e-7


class Muon(torch.optim.Optimizer):
    """For matrices. Those of one shape are made orthogonal together."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], rate: float, momentum: float, products: torch.dtype = torch.float32
    ) -> None:
        super().__init__(groups, {"lr": rate, "momentum": momentum, "weight_decay": 0.0})
        self.products = products

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the matrices by their gradients."""
        del closure
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    alike.setdefault(weight.shape, []).append(weight)
            for (rows, columns), weights in alike.items():
                together = torch.stack([self._momentum(weight, group["momentum"]) for weight in weights])
                moved = orthogonal(together, self.products)
                rate = group["lr"] * math.sqrt(max(1.0, rows / columns))
                for weight, change in zip(weights, moved, strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(change, alpha=rate)

    def _momentum(self, weight: Tensor, momentum: float) -> Tensor:
        """The mean of the gradients so far, looking one step ahead (Nesterov)."""
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        mean: Tensor = state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(mean, momentum)


def orthogonal(
    matrices: Float[Tensor, "count rows columns"], products: torch.dtype = torch.float32
) -> Float[Tensor, "count rows columns"]:
    """Each matrix with its singular values brought near to 1, by products in such numbers."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_min(EPSILON)
    x = x.to(products) if products.itemsize < x.dtype.itemsize else x
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.transpose(1, 2) if tall else x).to(matrices.dtype)
