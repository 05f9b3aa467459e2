"""Muon (Jordan 2024): orthogonalized momentum.

The update of a matrix is its momentum with all singular values moved close to 1, so that all directions are learned
equally fast. Five steps of a Newton-Schulz iteration do this with matrix products only:

    X ← a·X + (b·A + c·A²)·X        with A = X·Xᵀ

torch also has Muon, but always in bfloat16; on a CPU without bfloat16 instructions such a step takes about twenty times
as long as one in float32. Here the products use the precision of the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Jordan's coefficients: small singular values grow fast, and all end between about 0.7 and 1.2."""
NEWTON_SCHULZ_STEPS = 5
EPS = 1e-7


class Muon(torch.optim.Optimizer):
    """Muon for matrices. Matrices of equal shape are orthogonalized in one batch."""

    def __init__(
        self, params: Iterable[dict[str, Any]], lr: float, momentum: float, matmul_dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})
        self.matmul_dtype = matmul_dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the matrices."""
        del closure
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape.setdefault(weight.shape, []).append(weight)
            for (rows, columns), weights in by_shape.items():
                momenta = torch.stack([self._momentum(weight, group["momentum"]) for weight in weights])
                updates = orthogonalize(momenta, self.matmul_dtype)
                lr = group["lr"] * math.sqrt(max(1.0, rows / columns))
                for weight, update in zip(weights, updates, strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=lr)

    def _momentum(self, weight: Tensor, momentum: float) -> Tensor:
        """Return the Nesterov momentum of a matrix."""
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        mean: Tensor = state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(mean, momentum)


def orthogonalize(
    matrices: Float[Tensor, "count rows columns"], matmul_dtype: torch.dtype = torch.float32
) -> Float[Tensor, "count rows columns"]:
    """Move the singular values of each matrix close to 1, with matrix products in `matmul_dtype`."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_min(EPS)
    x = x.to(matmul_dtype) if matmul_dtype.itemsize < x.dtype.itemsize else x
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.transpose(1, 2) if tall else x).to(matrices.dtype)
