"""Normalisation layers: LayerNorm and RMSNorm."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.transformer import config


class LayerNorm(nn.Module):
    """(x - mean) / √(variance + ε) · weight + bias, over the last axis."""

    def __init__(self, design: config.LayerNorm, dim: int) -> None:
        super().__init__()
        self.epsilon = design.epsilon
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Float[Tensor, "*any dim"]) -> Float[Tensor, "*any dim"]:
        """Normalise each vector."""
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RMSNorm(nn.Module):
    """x / √(mean(x²) + ε) · weight, over the last axis. float16 and bfloat16 are normalised in float32."""

    def __init__(self, design: config.RMSNorm, dim: int) -> None:
        super().__init__()
        self.epsilon = design.epsilon
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Float[Tensor, "*any dim"]) -> Float[Tensor, "*any dim"]:
        """Normalise each vector."""
        x_float32 = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return functional.rms_norm(x_float32, self.weight.shape, None, self.epsilon).to(x.dtype) * self.weight


def build(design: config.Norm, dim: int) -> LayerNorm | RMSNorm:
    """Build the norm of a config."""
    match design:
        case config.LayerNorm():
            return LayerNorm(design, dim)
        case config.RMSNorm():
            return RMSNorm(design, dim)
