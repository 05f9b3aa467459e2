"""int8 tensors in checkpoints: symmetric quantization to -127…127 with one scale per output channel.

In a file the quantized values have the name of the weight, and the scale has that name with the suffix `.scale`. Its
shape broadcasts: values · scale is the weight, in the layout of the file. Reading gives the dequantized weight
(quantizing it again gives the same values) or, on request, the quantized values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from regard.checkpoint.model_folder import CheckpointError
from regard.checkpoint.tensor_files import LazyTensor
from regard.families.weight_map import TensorMapping

QMAX = 127
SCALE_SUFFIX = ".scale"
CHUNK_ELEMENTS = 1 << 18
"""Elements quantized at a time, so that the temporary memory is small compared with the weight."""
MIN_ABSMAX = 1e-30
"""Lower bound of a channel's absolute maximum: a channel of zeros must not have a scale of zero."""


def channel_scales(weight: Float[Tensor, "output input"], qmax: int = QMAX) -> Float[Tensor, " output"]:
    """Return the scale of each output channel: its absolute maximum divided by `qmax`."""
    return torch.linalg.vector_norm(weight, torch.inf, dim=1).clamp_min(MIN_ABSMAX) / qmax


def quantize(
    weight: Float[Tensor, "output input"],
) -> tuple[Int8[Tensor, "output input"], Float[Tensor, " output"]]:
    """Quantize a weight to int8; return the quantized values and the scale of each output channel."""
    scale = channel_scales(weight)
    qweight = torch.empty_like(weight, dtype=torch.int8, memory_format=torch.contiguous_format)
    step = max(1, CHUNK_ELEMENTS // weight.shape[1])
    for start in range(0, len(weight), step):
        rows = slice(start, start + step)
        qweight[rows] = (weight[rows] / scale[rows, None]).round_()
    return qweight, scale


@dataclass(frozen=True)
class QuantizedTensor:
    """An int8 weight as stored in a checkpoint."""

    qweight: Int8[Tensor, "output input"]
    scale: Float[Tensor, " output"]
    """The scale of each output channel."""

    def dequantize(self) -> Float[Tensor, "output input"]:
        """Return the weight in float32."""
        return self.qweight.float() * self.scale[:, None]

    def multiply(self, number: float) -> QuantizedTensor:
        """Return the weight times a number."""
        return QuantizedTensor(self.qweight, self.scale * number)

    def channel_scales(self, qmax: int = QMAX) -> Float[Tensor, " output"]:
        """Return the scales for another `qmax`, bit-identical to `channel_scales` of the dequantized weight."""
        return (self.scale * QMAX).clamp_min(MIN_ABSMAX) / qmax


def collapse_scale(scale: Tensor) -> Tensor:
    """Reduce an elementwise scale to size 1 along each axis on which it is constant."""
    for axis in range(scale.ndim):
        first = scale.narrow(axis, 0, 1)
        if bool((scale == first).all()):
            scale = first
    return scale.contiguous()


def dequantize_tensors(stored: Mapping[str, LazyTensor], folder: str) -> dict[str, LazyTensor]:
    """Replace the int8 tensors of a folder, and their scales, by tensors that are dequantized when read."""
    tensors = {name: value for name, value in stored.items() if not _is_scale(name, stored)}
    for name, value in tensors.items():
        scale = stored.get(name + SCALE_SUFFIX)
        if scale is None or value.dtype is not None:
            continue
        if len(scale.shape) != len(value.shape) or any(
            scale_size not in (1, size) for scale_size, size in zip(scale.shape, value.shape, strict=True)
        ):
            raise CheckpointError(
                f"{folder}: the scale of {name} has shape {scale.shape}, which does not broadcast to {value.shape}"
            )
        tensors[name] = replace(
            value,
            dtype=torch.float32,
            read=_dequantizing_reader(value, scale),
            read_quantized=_quantized_reader(value, scale),
        )
    return tensors


def split_quantized(mapping: TensorMapping, stored: LazyTensor) -> list[QuantizedTensor] | None:
    """Return the int8 weights in one tensor of a file; None if it is not int8, or not quantized per output channel."""
    if stored.read_quantized is None:
        return None
    values, scale = stored.read_quantized()
    count = len(mapping.ours)
    qweights, scales = mapping.how.read(values, count), mapping.how.read(scale.expand_as(values), count)
    parts = []
    for qweight, scale in zip(qweights, scales, strict=True):
        if qweight.ndim != 2 or not (scale.stride(1) == 0 or bool((scale == scale[:, :1]).all())):
            return None
        parts.append(QuantizedTensor(qweight, scale[:, 0].float()))
    return parts


def _is_scale(name: str, stored: Mapping[str, LazyTensor]) -> bool:
    """Whether a tensor is the scale of an int8 tensor."""
    weight = stored.get(name.removesuffix(SCALE_SUFFIX))
    return name.endswith(SCALE_SUFFIX) and weight is not None and weight.dtype is None


def _dequantizing_reader(qweight: LazyTensor, scale: LazyTensor) -> Callable[[], Tensor]:
    return lambda: qweight.read().float() * scale.read()


def _quantized_reader(qweight: LazyTensor, scale: LazyTensor) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (qweight.read(), scale.read())
