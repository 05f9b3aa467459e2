"""The feed-forward layer: each position alone, widened, bent, and narrowed again."""

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
    """GELU by the tanh formula of its paper (Hendrycks and Gimpel 2016): GPT-2's and T5 1.1's."""
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: functional.relu,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: gelu_tanh,
    Activation.SILU: functional.silu,
    Activation.TANH: torch.tanh,
    Activation.QUICK_GELU: quick_gelu,
}
KINDS = {function: kind for kind, function in ACTIVATIONS.items()}
"""Which activation a function is."""


class Dense(nn.Module):
    """down(activation(up(x))): the paper's max(0, xW₁ + b₁)W₂ + b₂."""

    def __init__(self, design: config.Dense, model_dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(model_dim, design.dim, design.bias)
        self.down = nn.Linear(design.dim, model_dim, design.bias)
        self.activation = ACTIVATIONS[design.activation]
        self.dropout = nn.Dropout(design.dropout)

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Each vector transformed."""
        return self.down(self.dropout(self.activation(self.up(x))))


class Gated(nn.Module):
    """down(activation(gate(x)) · up(x))."""

    def __init__(self, design: config.Gated, model_dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(model_dim, design.dim, design.bias)
        self.gate = nn.Linear(model_dim, design.dim, design.bias)
        self.down = nn.Linear(design.dim, model_dim, design.bias)
        self.activation = ACTIVATIONS[design.activation]
        self.dropout = nn.Dropout(design.dropout)

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Each vector transformed."""
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))


def build(design: config.Dense | config.Gated, model_dim: int) -> Dense | Gated:
    """The feed-forward layer that a config names."""
    match design:
        case config.Dense():
            return Dense(design, model_dim)
        case config.Gated():
            return Gated(design, model_dim)
