"""Inference modules built on torch. Each replaces a module of `regard.transformer` and has the same interface.

`make_replacement` chooses between these and the native ones (`modules_native.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import QuantizedTensor
from regard.engine.linear import LinearWeights, Precision, make_fused_linear, make_linear, weight_of
from regard.engine.modules_native import NativeDense, NativeGated, NativeNorm, NativeResidual
from regard.native.library import available
from regard.transformer.attention import Heads, KeyHeads, Projection
from regard.transformer.attention_kernel import AttentionKernel, Bias, Key, Query, attention_weights, fused_attention
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import NormOrder
from regard.transformer.embedding import Tokens
from regard.transformer.feedforward import Dense, Gated
from regard.transformer.head import LanguageModel
from regard.transformer.head_base import HeadOutput, HiddenStates, PerTokenHead
from regard.transformer.mask import AttentionMask
from regard.transformer.normalization import LayerNorm, RMSNorm
from regard.transformer.residual import Residual

MAX_EXPLICIT_QUERIES = 16
"""Up to this many queries of a sequence, attention is computed explicitly instead of by torch's fused kernel."""


class SelfProjection(nn.Module):
    """Query, key and value of the same hidden states, as one fused linear layer."""

    def __init__(self, original: Projection, precision: Precision) -> None:
        super().__init__()
        self.head_dim = original.head_dim
        layers = (original.query, original.key, original.value)
        self.head_counts = [layer.out_features // original.head_dim for layer in layers]
        self.linear = make_fused_linear(layers, precision)

    def forward(self, hidden: Float[Tensor, "tokens model"]) -> tuple[Heads, KeyHeads, KeyHeads]:
        """Return query, key and value."""
        output = self.linear(hidden)
        query, key, value = output.view(len(output), -1, self.head_dim).split(self.head_counts, dim=1)
        return query, key, value


class CrossProjection(nn.Module):
    """Queries of one sequence, keys and values of another; key and value are one fused linear layer."""

    def __init__(self, original: Projection, precision: Precision, kv_dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.head_dim, self.kv_dtype = original.head_dim, kv_dtype
        self.head_counts = [
            layer.out_features // original.head_dim for layer in (original.query, original.key, original.value)
        ]
        self.query = make_fused_linear([original.query], precision)
        self.key_value = make_fused_linear([original.key, original.value], precision)

    def forward(self, hidden: Float[Tensor, "tokens model"]) -> tuple[Heads, KeyHeads, KeyHeads]:
        """Return query, key and value of the same hidden states."""
        return self.query_heads(hidden), *self.key_value_heads(hidden)

    def query_heads(self, hidden: Float[Tensor, "tokens model"]) -> Heads:
        """Return the queries."""
        return self.query(hidden).view(len(hidden), -1, self.head_dim)

    def key_value_heads(self, hidden: Float[Tensor, "key_tokens model"]) -> tuple[KeyHeads, KeyHeads]:
        """Return keys and values."""
        output = self.key_value(hidden).to(self.kv_dtype)
        key, value = output.view(len(hidden), -1, self.head_dim).chunk(2, dim=1)
        return key, value


class InferenceDense(nn.Module):
    """down(activation(up(x)))."""

    def __init__(self, original: Dense, precision: Precision) -> None:
        super().__init__()
        self.up, self.down = make_fused_linear([original.up], precision), make_fused_linear([original.down], precision)
        self.activation = original.activation

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Apply the feed-forward layer."""
        return self.down(self.activation(self.up(x)))


class InferenceGated(nn.Module):
    """down(activation(gate(x)) · up(x)); gate and up are one fused linear layer."""

    def __init__(self, original: Gated, precision: Precision) -> None:
        super().__init__()
        self.gate_up = make_fused_linear([original.gate, original.up], precision)
        self.down = make_fused_linear([original.down], precision)
        self.activation = original.activation

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Apply the feed-forward layer."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.activation(gate).mul_(up))


class InferenceResidual(nn.Module):
    """The residual connection around a sublayer, without dropout."""

    def __init__(self, original: Residual) -> None:
        super().__init__()
        self.pre_norm = original.order is not NormOrder.POST
        self.norm, self.output_norm = original.norm, original.output_norm

    def forward(self, x: HiddenStates, sublayer: Callable[[HiddenStates], HiddenStates]) -> HiddenStates:
        """Apply the sublayer and add its input."""
        if not self.pre_norm:
            return self.norm(x + sublayer(x))
        output = sublayer(self.norm(x))
        return x + (output if self.output_norm is None else self.output_norm(output))


class InferenceKernel(AttentionKernel):
    """Attention that computes softmax(QKᵀ)V explicitly for a few queries, such as the beams of a sequence. There it is
    faster than torch's fused kernel. The choice does not depend on the other sequences of the batch."""

    def forward(self, query: Query, key: Key, value: Key, attention_mask: AttentionMask, bias: Bias | None) -> Query:
        """Return the attention output."""
        if not 1 < query.shape[2] <= MAX_EXPLICIT_QUERIES or query.shape[1] != key.shape[1]:
            return fused_attention(query, key, value, self.scale, attention_mask, bias)
        return attention_weights(query, key, self.scale, attention_mask, bias) @ value


class InferenceLanguageModel(PerTokenHead):
    """Language-modelling head: the logits of the vocabulary at every position."""

    def __init__(self, original: LanguageModel, precision: Precision) -> None:
        super().__init__()
        self.transform = original.transform
        weight, bias = weight_of(original.output), None if original.bias is None else original.bias.detach()
        if original.scale != 1:  # scaling the weight is the same as scaling the hidden states
            weight = weight.multiply(original.scale) if isinstance(weight, QuantizedTensor) else weight * original.scale
        self.linear = make_linear(LinearWeights(weight, bias), precision)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the logits at each position."""
        del layout
        return HeadOutput(token_logits=self.linear(x if self.transform is None else self.transform(x)))


class QuantizedTokens(nn.Module):
    """An int8 token embedding: only the rows that are looked up are dequantized."""

    def __init__(self, original: QuantizedTensor) -> None:
        super().__init__()
        self.qweight = nn.Buffer(original.qweight, persistent=False)
        self.scale = nn.Parameter(original.scale, requires_grad=False)

    def forward(self, tokens: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        """Return the embeddings of the tokens."""
        return self.qweight[tokens] * self.scale[tokens, None]


def make_replacement(module: nn.Module, precision: Precision) -> nn.Module | None:
    """Return the module that replaces this one, or None if there is no faster one."""
    if available() and (native := _native_replacement(module, precision)) is not None:
        return native
    match module:
        case Dense():
            return InferenceDense(module, precision)
        case Gated():
            return InferenceGated(module, precision)
        case LanguageModel():
            return InferenceLanguageModel(module, precision)
        case Residual():
            return InferenceResidual(module)
        case AttentionKernel():
            return InferenceKernel(module.scale, module.dropout).eval()
        case Tokens():
            table = weight_of(module)
            return QuantizedTokens(table) if isinstance(table, QuantizedTensor) else None
        case _:
            return None


def _native_replacement(module: nn.Module, precision: Precision) -> nn.Module | None:
    """Return the replacement that is built on the native kernels, or None."""
    match module:
        case Dense():
            return NativeDense(module, precision)
        case Gated():
            return NativeGated(module, precision)
        case Residual():
            return NativeResidual(module)
        case LayerNorm() | RMSNorm():
            return NativeNorm(module)
        case _:
            return None
