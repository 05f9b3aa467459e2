"""Linear layers packed for CPU inference.

In autoregressive decoding few vectors are multiplied by many weights, and nearly all of the time goes into reading the
weights. So weights are packed once, as the native GEMM reads them (`modules_native.py`) or, without the native library,
as oneDNN does; or they are quantized to int8 (`linear_int8.py`). Layers with the same input are fused: their weights
are concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import QuantizedTensor
from regard.native.library import available


class Precision(Enum):
    """The numerical precision of a compiled network."""

    FLOAT32 = "float32"
    """The weights of the original network. Results differ only by the order of additions."""
    INT8 = "int8"
    """int8 weights, a quarter of the memory, and int8 activations; with the native library, bfloat16 keys and values.
    `quantization_error.py` measures what that costs in quality."""

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        """Accept "fp32", the name of FLOAT32 in older versions."""
        return cls.FLOAT32 if value == "fp32" else None


@dataclass(frozen=True)
class LinearWeights:
    """The weight and bias of a linear layer before packing: x ↦ x·weightᵀ + bias."""

    weight: Float[Tensor, "output input"] | QuantizedTensor
    """float32, or quantized as in an int8 checkpoint."""
    bias: Float[Tensor, " output"] | None

    @classmethod
    def from_layers(cls, *layers: nn.Linear) -> LinearWeights:
        """Concatenate the weights of layers that have the same input."""
        weight = concatenate_weights([weight_of(layer) for layer in layers])
        biases: list[Tensor | None] = [layer.bias for layer in layers]
        present = [bias.detach() for bias in biases if bias is not None]
        return cls(weight, torch.cat(present) if present else None)

    @property
    def dequantized_weight(self) -> Float[Tensor, "output input"]:
        """The weight in float32."""
        return self.weight.dequantize() if isinstance(self.weight, QuantizedTensor) else self.weight


def weight_of(layer: nn.Module) -> Float[Tensor, "output input"] | QuantizedTensor:
    """Return the weight of a linear layer or an embedding as it was loaded: float32 or quantized."""
    weight: Tensor = layer.get_parameter("weight").detach()
    return QuantizedTensor(weight, layer.get_buffer("scale")) if weight.dtype == torch.int8 else weight


def concatenate_weights(weights: Sequence[Tensor | QuantizedTensor]) -> Float[Tensor, "output input"] | QuantizedTensor:
    """Concatenate weights along the output dimension. A single weight is not copied."""
    if len(weights) == 1:
        return weights[0]
    quantized = [weight for weight in weights if isinstance(weight, QuantizedTensor)]
    if len(quantized) == len(weights):
        qweight = torch.cat([weight.qweight for weight in quantized])
        return QuantizedTensor(qweight, torch.cat([weight.scale for weight in quantized]))
    return torch.cat([weight.dequantize() if isinstance(weight, QuantizedTensor) else weight for weight in weights])


class TorchLinear(nn.Module):
    """A linear layer in torch's layout, for a torch without oneDNN."""

    bias: Tensor | None

    def __init__(self, weights: LinearWeights) -> None:
        super().__init__()
        self.weight = nn.Buffer(weights.dequantized_weight.contiguous(), persistent=False)
        self.register_buffer("bias", weights.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """Return x·weightᵀ + bias."""
        return nn.functional.linear(x, self.weight, self.bias)


class OneDnnLinear(nn.Module):
    """A linear layer in the blocked layout of oneDNN's kernels."""

    bias: Tensor | None

    def __init__(self, weights: LinearWeights) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weights.dequantized_weight.contiguous())
        self.register_buffer("bias", weights.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """Return x·weightᵀ + bias."""
        return torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, "none", [], "")


def make_linear(weights: LinearWeights, precision: Precision) -> nn.Module:
    """Return the fastest linear layer with these weights on this machine."""
    if available():
        from regard.engine.modules_native import PackedLinear

        return PackedLinear(weights, precision)
    if precision is Precision.INT8:
        from regard.engine.linear_int8 import make_int8_linear

        return make_int8_linear(weights)
    return OneDnnLinear(weights) if torch._C._has_mkldnn else TorchLinear(weights)


def make_fused_linear(layers: Sequence[nn.Linear], precision: Precision) -> nn.Module:
    """Return the fastest linear layer for several layers that have the same input, with concatenated outputs."""
    return make_linear(LinearWeights.from_layers(*layers), precision)
