"""The position-wise feed-forward layer: up-projection, activation, down-projection."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.transformer import config
from regard.transformer.config import Activation


def quick_gelu(x: Tensor) -> Tensor:
    """x · sigmoid(1.702 x): a cheaper GELU, used by CLIP."""
    return x * torch.sigmoid(1.702 * x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by the tanh approximation of its paper (Hendrycks and Gimpel 2016), used by GPT-2 and T5 1.1."""
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: functional.relu,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: gelu_tanh,
    Activation.SILU: functional.silu,
    Activation.TANH: torch.tanh,
    Activation.QUICK_GELU: quick_gelu,
}
ACTIVATION_OF = {function: activation for activation, function in ACTIVATIONS.items()}
"""The activation that each function computes: the inverse of `ACTIVATIONS`."""


class Dense(nn.Module):
    """down(activation(up(x))): the paper's max(0, xW₁ + b₁)W₂ + b₂."""

    def __init__(self, design: config.Dense, model_dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(model_dim, design.dim, design.bias)
        self.down = nn.Linear(design.dim, model_dim, design.bias)
        self.activation = ACTIVATIONS[design.activation]
        self.dropout = nn.Dropout(design.dropout)

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Transform each vector."""
        return self.down(self.dropout(self.activation(self.up(x))))


class Gated(nn.Module):
    """down(activation(gate(x)) · up(x)): a gated linear unit (Shazeer 2020)."""

    def __init__(self, design: config.Gated, model_dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(model_dim, design.dim, design.bias)
        self.gate = nn.Linear(model_dim, design.dim, design.bias)
        self.down = nn.Linear(design.dim, model_dim, design.bias)
        self.activation = ACTIVATIONS[design.activation]
        self.dropout = nn.Dropout(design.dropout)

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Transform each vector."""
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))


def build(design: config.Dense | config.Gated, model_dim: int) -> Dense | Gated:
    """Build the feed-forward layer of a config."""
    match design:
        case config.Dense():
            return Dense(design, model_dim)
        case config.Gated():
            return Gated(design, model_dim)
