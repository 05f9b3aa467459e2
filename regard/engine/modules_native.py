"""Inference modules built on the native kernels (`regard.native`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import QuantizedTensor, quantize
from regard.engine.linear import LinearWeights, Precision
from regard.native import ctypes_structs, ops
from regard.transformer.config import Activation, NormOrder
from regard.transformer.feedforward import ACTIVATION_OF, Dense, Gated
from regard.transformer.head_base import HiddenStates
from regard.transformer.normalization import LayerNorm, RMSNorm
from regard.transformer.residual import Residual

IMMOVABLE = (
    "a compiled network cannot be moved, cast, copied or pickled: do that to the original network and compile it again"
)


class FixedAddressModule(nn.Module):
    """A module whose tensors C accesses by address, so they can be neither moved nor cast."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FixedAddressModule:
        addresses = self._tensor_addresses()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._tensor_addresses() != addresses:
            raise TypeError(f"this compiled network is now invalid: {IMMOVABLE}")
        return self

    def _tensor_addresses(self) -> list[tuple[int, torch.dtype]]:
        tensors = [*self.parameters(recurse=False), *self.buffers(recurse=False)]
        return [(tensor.data_ptr(), tensor.dtype) for tensor in tensors]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        raise TypeError(IMMOVABLE)


class PackedLinear(FixedAddressModule):
    """A linear layer whose weight is packed in panels for the native GEMM, in float32 or int8.

    With an int8 weight, each input vector is quantized to int8 with its own scale, so its result does not depend on the
    other vectors.
    """

    scale: Tensor | None
    bias: Tensor | None

    def __init__(self, weights: LinearWeights, precision: Precision, activation: Activation | None = None) -> None:
        super().__init__()
        scale = None
        if precision is Precision.INT8:
            weight = (
                weights.weight
                if isinstance(weights.weight, QuantizedTensor)
                else QuantizedTensor(*quantize(weights.weight))
            )
            self.out_features, self.in_features = weight.qweight.shape
            packed, scale = ops.pack_int8(weight.qweight), weight.scale.contiguous()
        else:
            dequantized = weights.dequantized_weight
            self.out_features, self.in_features = dequantized.shape
            packed = ops.pack_f32(dequantized)
        self.packed = nn.Buffer(packed, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("bias", weights.bias, persistent=False)
        pointers = (ctypes_structs.pointer(x) for x in (self.packed, scale, weights.bias))
        self.struct = ctypes_structs.PackedMatrix(
            self.out_features, self.in_features, *pointers, ops.ACTIVATION_CODES[activation]
        )

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """Return activation(x·weightᵀ + bias)."""
        if x.dim() == 2:
            return ops.packed_linear(x, self.struct)
        return ops.packed_linear(x.flatten(0, -2), self.struct).view(*x.shape[:-1], -1)


class NativeDense(nn.Module):
    """down(activation(up(x))); the GEMM of `up` applies the activation."""

    def __init__(self, original: Dense, precision: Precision) -> None:
        super().__init__()
        self.up = PackedLinear(LinearWeights.from_layers(original.up), precision, ACTIVATION_OF[original.activation])
        self.down = PackedLinear(LinearWeights.from_layers(original.down), precision)

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Apply the feed-forward layer."""
        return self.down(self.up(x))


class NativeGated(nn.Module):
    """down(activation(gate(x)) · up(x)); gate and up are one fused linear layer."""

    def __init__(self, original: Gated, precision: Precision) -> None:
        super().__init__()
        self.gate_up = PackedLinear(LinearWeights.from_layers(original.gate, original.up), precision)
        self.down = PackedLinear(LinearWeights.from_layers(original.down), precision)
        self.activation = ops.ACTIVATION_CODES[ACTIVATION_OF[original.activation]]

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Apply the feed-forward layer."""
        output = self.down(ops.gated_activation(self.gate_up(x.flatten(0, -2)), self.activation))
        return output if x.dim() == 2 else output.view(*x.shape)


class NativeNorm(FixedAddressModule):
    """LayerNorm or RMSNorm, optionally of a sum (Add & Norm)."""

    bias: Tensor | None

    def __init__(self, original: LayerNorm | RMSNorm) -> None:
        super().__init__()
        self.weight = original.weight
        self.bias = original.bias if isinstance(original, LayerNorm) else None
        pointers = (ctypes_structs.pointer(x) for x in (self.weight, self.bias))
        self.struct = ctypes_structs.Norm(*pointers, original.epsilon, isinstance(original, LayerNorm))

    def forward(self, x: Float[Tensor, "*any dim"], sublayer_output: Tensor | None = None) -> Float[Tensor, "*any dim"]:
        """Return norm(x + sublayer_output)."""
        flat_output = None if sublayer_output is None else sublayer_output.flatten(0, -2)
        return ops.add_norm(x.flatten(0, -2), flat_output, self.struct).view(x.shape)


def norm_struct(module: nn.Module | None) -> ctypes_structs.Norm | None:
    """Return the C struct of a native norm, or None if there is no norm."""
    return module.struct if isinstance(module, NativeNorm) else None


class NativeResidual(nn.Module):
    """The residual connection around a sublayer, without dropout. With post-norm, sum and norm are one kernel."""

    def __init__(self, original: Residual) -> None:
        super().__init__()
        self.order = original.order
        self.norm = _native_norm(original.norm)
        self.output_norm = None if original.output_norm is None else _native_norm(original.output_norm)

    def forward(self, x: HiddenStates, sublayer: Callable[[HiddenStates], HiddenStates]) -> HiddenStates:
        """Apply the sublayer and add its input."""
        if self.order is NormOrder.POST:
            return self.norm(x, sublayer(x))
        output = sublayer(self.norm(x))
        return x + (output if self.output_norm is None else self.output_norm(output))


def _native_norm(original: nn.Module) -> NativeNorm:
    assert isinstance(original, LayerNorm | RMSNorm)
    return NativeNorm(original)
