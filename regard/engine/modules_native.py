"""Parts that call the compiled functions (`regard.native`), where the machine has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never, SupportsIndex

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import Rounded, rounded
from regard.engine.linear import Affine, Precision
from regard.native import ctypes_structs, ops
from regard.transformer.config import Activation, NormOrder
from regard.transformer.feedforward import KINDS, Dense, Gated
from regard.transformer.head_base import Vectors
from regard.transformer.normalization import LayerNorm, RMSNorm
from regard.transformer.residual import Residual

STAYS = (
    "a prepared network stays float32 on the CPU, and is neither copied nor pickled: move, change, copy or save the "
    "network that it was prepared from, and prepare that"
)


class InPlace(nn.Module):
    """A part whose tensors the compiled functions know by their addresses: they stay where and what they are."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> InPlace:
        before = self._addresses()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._addresses() != before:
            raise TypeError(f"this network is of no more use: {STAYS}")
        return self

    def _addresses(self) -> list[tuple[int, torch.dtype]]:
        tensors = [*self.parameters(recurse=False), *self.buffers(recurse=False)]
        return [(tensor.data_ptr(), tensor.dtype) for tensor in tensors]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        raise TypeError(STAYS)


class InPanels(InPlace):
    """A matrix in panels of some outputs, of floats or of bytes, as the compiled product reads it.

    With bytes, each vector that comes is rounded to bytes too, by its largest number: what becomes of a vector does not
    depend on those beside it.
    """

    scale: Tensor | None
    bias: Tensor | None

    def __init__(self, affine: Affine, precision: Precision, activation: Activation | None = None) -> None:
        super().__init__()
        scale = None
        if precision is Precision.INT8:
            weight = affine.weight if isinstance(affine.weight, Rounded) else Rounded(*rounded(affine.weight))
            self.outputs, self.inputs = weight.levels.shape
            packed, scale = ops.pack_bytes(weight.levels), weight.scale.contiguous()
        else:
            numbers = affine.widened
            self.outputs, self.inputs = numbers.shape
            packed = ops.pack(numbers)
        self.packed = nn.Buffer(packed, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("bias", affine.bias, persistent=False)
        places = (ctypes_structs.pointer(x) for x in (self.packed, scale, affine.bias))
        self.matrix = ctypes_structs.Matrix(self.outputs, self.inputs, *places, ops.ACTIVATIONS[activation])

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """activation(x·weightᵀ + bias)."""
        if x.dim() == 2:
            return ops.multiply(x, self.matrix)
        return ops.multiply(x.flatten(0, -2), self.matrix).view(*x.shape[:-1], -1)

    def only(self, chosen: Int[Tensor, " chosen"]) -> InPanels:
        """The matrix of these outputs alone."""
        width, together = ops.panel(), ops.together()
        bias, panel, place = None if self.bias is None else self.bias[chosen], chosen // width, chosen % width
        if self.scale is None:
            weight = self.packed.view(-1, self.inputs, width)[panel, :, place]
            return InPanels(Affine(weight, bias), Precision.FP32)
        groups = self.packed.view(-1, -(-self.inputs // together), width, together)[panel, :, place]
        levels = groups.flatten(1)[:, : self.inputs] ^ -ops.added()
        return InPanels(Affine(Rounded(levels, self.scale[chosen]), bias), Precision.INT8)


class CompiledDense(nn.Module):
    """down(activation(up(x))), the activation on the way."""

    def __init__(self, plain: Dense, precision: Precision) -> None:
        super().__init__()
        self.up = InPanels(Affine.of(plain.up), precision, KINDS[plain.activation])
        self.down = InPanels(Affine.of(plain.down), precision)

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Each vector transformed."""
        return self.down(self.up(x))


class CompiledGated(nn.Module):
    """down(activation(gate(x)) · up(x)), gate and up by one matrix."""

    def __init__(self, plain: Gated, precision: Precision) -> None:
        super().__init__()
        self.gate_up = InPanels(Affine.of(plain.gate, plain.up), precision)
        self.down = InPanels(Affine.of(plain.down), precision)
        self.activation = ops.ACTIVATIONS[KINDS[plain.activation]]

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Each vector transformed."""
        found = self.down(ops.gate(self.gate_up(x.flatten(0, -2)), self.activation))
        return found if x.dim() == 2 else found.view(*x.shape)


class CompiledNorm(InPlace):
    """LayerNorm or RMSNorm; of a sum, if asked."""

    bias: Tensor | None

    def __init__(self, plain: LayerNorm | RMSNorm) -> None:
        super().__init__()
        self.weight = plain.weight
        self.bias = plain.bias if isinstance(plain, LayerNorm) else None
        places = (ctypes_structs.pointer(x) for x in (self.weight, self.bias))
        self.norm = ctypes_structs.Norm(*places, plain.epsilon, isinstance(plain, LayerNorm))

    def forward(self, x: Float[Tensor, "*any dim"], said: Tensor | None = None) -> Float[Tensor, "*any dim"]:
        """norm(x + said)."""
        flat = [None if part is None else part.flatten(0, -2) for part in (x, said)]
        assert flat[0] is not None
        return ops.add_and_normalise(flat[0], flat[1], self.norm).view(x.shape)


def norm_of(part: nn.Module | None) -> ctypes_structs.Norm | None:
    """A compiled norm's own numbers, if there is one."""
    return part.norm if isinstance(part, CompiledNorm) else None


class CompiledResidual(nn.Module):
    """The connection around a sublayer, without dropout; sum and norm in one go where they follow each other."""

    def __init__(self, plain: Residual) -> None:
        super().__init__()
        self.order = plain.order
        self.norm = _norm(plain.norm)
        self.output_norm = None if plain.output_norm is None else _norm(plain.output_norm)

    def forward(self, x: Vectors, sublayer: Callable[[Vectors], Vectors]) -> Vectors:
        """The sublayer's answer, connected."""
        if self.order is NormOrder.POST:
            return self.norm(x, sublayer(x))
        said = sublayer(self.norm(x))
        return x + (said if self.output_norm is None else self.output_norm(said))


def _norm(plain: nn.Module) -> CompiledNorm:
    assert isinstance(plain, LayerNorm | RMSNorm)
    return CompiledNorm(plain)
