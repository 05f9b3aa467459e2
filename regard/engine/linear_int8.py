"""int8 linear layers: per-channel weight scales, per-token activation scales.

Each output channel of the weight has a static scale. Each input vector gets a dynamic scale from its largest absolute
value, so the result of a sequence does not depend on the other sequences of the batch:

    q = round(x / absmax(x) · qmax)          y = (q · qweightᵀ) · absmax(x) / qmax · scale + bias

There are two implementations, and which one is faster depends on the CPU. With AVX-512 VNNI, `VnniLinear` uses the full
int8 range ±127. Without it, `FbgemmLinear` is much faster: it adds pairs of int8 products in 16-bit accumulators, so
one of the factors has to be limited to 7 bits (±63). That is the weight: the values of one of its rows are of similar
size, while an input vector has a few outliers, and the other values need the full range.
"""

from __future__ import annotations

import threading
import warnings

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import MIN_ABSMAX, QMAX, QuantizedTensor, channel_scales, quantize
from regard.engine.linear import LinearWeights

FBGEMM_QMAX = 63
"""2 · 63 · (127 + 128) fits into 16 bits: inputs are stored from 1 to 255, with the zero point 128."""
WARNINGS_LOCK = threading.Lock()
"""Warning filters are global to all threads, so only one thread may change them at a time."""
REQUANTIZE_ROWS = 512
"""Rows of a weight that are requantized at a time: chunks that fit into the CPU cache are fast and small."""


class VnniLinear(nn.Module):
    """An int8 linear layer with 32-bit accumulators, for CPUs with AVX-512 VNNI."""

    bias: Tensor | None

    def __init__(self, weights: LinearWeights) -> None:
        super().__init__()
        weight = (
            weights.weight
            if isinstance(weights.weight, QuantizedTensor)
            else QuantizedTensor(*quantize(weights.weight))
        )
        self.qweight = nn.Buffer(weight.qweight.contiguous(), persistent=False)
        self.scale = nn.Buffer(weight.channel_scales() / QMAX, persistent=False)
        self.register_buffer("bias", weights.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """Return x·weightᵀ + bias."""
        absmax = x.abs().amax(dim=-1, keepdim=True).clamp_min_(MIN_ABSMAX)
        quantized = (x * (QMAX / absmax)).round_().to(torch.int8)
        output = torch._int_mm(quantized.flatten(0, -2), self.qweight.t()).view(*x.shape[:-1], -1) * self.scale
        return output.mul_(absmax) if self.bias is None else torch.addcmul(self.bias, output, absmax)


class FbgemmLinear(nn.Module):
    """An int8 linear layer with 16-bit accumulators, for every x86 CPU of the last ten years."""

    bias: Tensor | None

    def __init__(self, weights: LinearWeights) -> None:
        super().__init__()
        with WARNINGS_LOCK, warnings.catch_warnings():  # torch deprecates this dtype; the kernels need it
            warnings.simplefilter("ignore")
            qweight = _quantize_for_fbgemm(weights.weight)
        self.packed_qweight = torch.ops.quantized.linear_prepack(qweight, None)
        self.register_buffer("bias", weights.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """Return x·weightᵀ + bias."""
        absmax = x.abs().amax(dim=-1, keepdim=True).clamp_min_(MIN_ABSMAX)
        output = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
            x / absmax, 1 / QMAX, QMAX + 1, self.packed_qweight
        )
        return output.mul_(absmax) if self.bias is None else torch.addcmul(self.bias, output, absmax)


def _quantize_for_fbgemm(weight: Tensor | QuantizedTensor) -> Tensor:
    """Quantize a weight to ±63, as a quantized tensor of torch.

    Requantizing an int8 weight gives the same result as quantizing the dequantized weight: since 127 is prime, no value
    falls halfway between two others.
    """
    if not isinstance(weight, QuantizedTensor):
        scale = channel_scales(weight, FBGEMM_QMAX).double()
        zeros = torch.zeros(len(scale), dtype=torch.long)
        return torch.quantize_per_channel(weight, scale, zeros, 0, torch.qint8)
    qweight = torch.empty_like(weight.qweight, memory_format=torch.contiguous_format)
    for chunk, out in zip(
        torch.split(weight.qweight, REQUANTIZE_ROWS), torch.split(qweight, REQUANTIZE_ROWS), strict=True
    ):
        out.copy_(chunk.float().mul_(FBGEMM_QMAX / QMAX).round_())
    scale = weight.channel_scales(FBGEMM_QMAX).double()
    return torch._make_per_channel_quantized_tensor(qweight, scale, torch.zeros(len(scale), dtype=torch.long), 0)


def make_int8_linear(weights: LinearWeights) -> VnniLinear | FbgemmLinear:
    """Return the faster int8 linear layer on this machine."""
    use_fbgemm = "fbgemm" in torch.backends.quantized.supported_engines and not torch.cpu._is_vnni_supported()
    return FbgemmLinear(weights) if use_fbgemm else VnniLinear(weights)
