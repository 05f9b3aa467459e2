"""Matrices in the layout that a CPU reads them fastest in.

When a text is written a token at a time, few vectors meet many weights, and nearly all of the time goes into fetching
the weights. So they are laid out once as the compiled product reads them (`compiled.py`) or, where there is none, as
the kernels of oneDNN do; or they are kept as bytes (`int8.py`). Matrices that read the same vectors are put on top of
each other and multiplied in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import Rounded
from regard.native.library import available


class Precision(Enum):
    """What the weights of a prepared network are kept in."""

    FP32 = "fp32"
    """As they are: the same numbers as the plain network's, but for the order of additions."""
    INT8 = "int8"
    """Bytes, a quarter of the memory. What that costs in quality is measured (`quality.py`)."""


@dataclass(frozen=True)
class Affine:
    """The numbers of a matrix that is to be prepared: x ↦ x·weightᵀ + bias."""

    weight: Float[Tensor, "output input"] | Rounded
    """As numbers, or in the levels that a folder has."""
    bias: Float[Tensor, " output"] | None

    @classmethod
    def of(cls, *layers: nn.Linear) -> Affine:
        """Layers that read the same input, on top of each other."""
        weight = together([numbers(layer) for layer in layers])
        biases: list[Tensor | None] = [layer.bias for layer in layers]
        there = [bias.detach() for bias in biases if bias is not None]
        return cls(weight, torch.cat(there) if there else None)

    @property
    def widened(self) -> Float[Tensor, "output input"]:
        """The weight as numbers."""
        return self.weight.widened() if isinstance(self.weight, Rounded) else self.weight


def numbers(layer: nn.Module) -> Float[Tensor, "output input"] | Rounded:
    """The weight of a layer or a table as it was loaded."""
    weight: Tensor = layer.get_parameter("weight").detach()
    return Rounded(weight, layer.get_buffer("scale")) if weight.dtype == torch.int8 else weight


def together(weights: Sequence[Tensor | Rounded]) -> Float[Tensor, "output input"] | Rounded:
    """Matrices on top of each other; one by itself is not copied."""
    if len(weights) == 1:
        return weights[0]
    rounded = [weight for weight in weights if isinstance(weight, Rounded)]
    if len(rounded) == len(weights):
        return Rounded(torch.cat([one.levels for one in rounded]), torch.cat([one.scale for one in rounded]))
    return torch.cat([weight.widened() if isinstance(weight, Rounded) else weight for weight in weights])


class Plain(nn.Module):
    """As torch has it, where it knows no better layout."""

    bias: Tensor | None

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.weight = nn.Buffer(affine.widened.contiguous(), persistent=False)
        self.register_buffer("bias", affine.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """x·weightᵀ + bias."""
        return nn.functional.linear(x, self.weight, self.bias)


class Packed(nn.Module):
    """The same in blocks, as oneDNN's kernels read them."""

    bias: Tensor | None

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(affine.widened.contiguous())
        self.register_buffer("bias", affine.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """x·weightᵀ + bias."""
        return torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, "none", [], "")


def matrix(affine: Affine, precision: Precision) -> nn.Module:
    """The quickest form of these numbers on this machine."""
    if available():
        from regard.engine.modules_native import InPanels

        return InPanels(affine, precision)
    if precision is Precision.INT8:
        from regard.engine.linear_int8 import int8

        return int8(affine)
    return Packed(affine) if torch._C._has_mkldnn else Plain(affine)


def matrix_of(layers: Sequence[nn.Linear], precision: Precision) -> nn.Module:
    """The quickest form of layers that read the same input, on top of each other."""
    return matrix(Affine.of(*layers), precision)


def named(precision: Precision | str) -> Precision:
    """A precision by its name."""
    known = [kind.value for kind in Precision]
    if not isinstance(precision, Precision) and precision not in known:
        raise ValueError(f"there is no precision {precision!r}: choose one of {', '.join(known)}")
    return Precision(precision)
