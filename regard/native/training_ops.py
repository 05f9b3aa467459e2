"""The native kernels for training, with their gradients. Tensors are float32 on the CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.native.ctypes_structs import DropoutRng, RowLengths, TrainingAttentionArguments
from regard.native.library import library
from regard.native.ops import ACTIVATION_CODES
from regard.transformer.config import Activation

DROPOUT_RANGE = 1 << 16
"""Dropout probabilities are multiples of 1 / 65,536."""
HEAD_DIM_MULTIPLE = 8
"""Training attention needs a head dimension that is a multiple of this."""


def make_dropout_rng(
    drop_threshold: int, keys: Int[Tensor, " rows"] | None = None, seed: int | None = None
) -> DropoutRng:
    """Return the random state of a dropout that drops `drop_threshold` of 65,536 values.

    With a key for each row, the mask of a row depends on its key and on the seed. By default the seed comes from
    torch's default generator, so `torch.manual_seed` makes runs reproducible.
    """
    if not drop_threshold:
        return DropoutRng(0, 0, 0, 1.0)
    seed = int(torch.randint(1 << 62, ())) if seed is None else seed
    scale = DROPOUT_RANGE / (DROPOUT_RANGE - drop_threshold) if drop_threshold < DROPOUT_RANGE else 0.0
    rng = DropoutRng(seed & 0xFFFFFFFF, seed >> 32, min(drop_threshold, DROPOUT_RANGE - 1), scale)
    if keys is not None:
        rng.keys, rng.row_keys = keys, keys.data_ptr()
    return rng


def dropout(x: Float[Tensor, "*any"], rng: DropoutRng) -> Float[Tensor, "*any"]:
    """Set random values to 0 and scale the others."""
    return DropoutFunction.apply(x, rng)  # type: ignore[no-untyped-call]


class DropoutFunction(torch.autograd.Function):
    """Dropout. The backward pass regenerates the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rng: DropoutRng) -> Tensor:
        """Return dropout(x)."""
        ctx.rng = rng
        return _dropout(x, rng)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        """Apply the same mask to the gradient."""
        return _dropout(gradient[0], ctx.rng), None


def _dropout(x: Tensor, rng: DropoutRng) -> Tensor:
    x = x.contiguous()
    output = torch.empty_like(x)
    library().dropout(*_rows(x, rng), x.data_ptr(), ctypes.addressof(rng), output.data_ptr())
    return output


def dropout_attention(
    weights: Float[Tensor, "rows heads query key"], rng: DropoutRng
) -> Float[Tensor, "rows heads query key"]:
    """Apply dropout to attention weights, with the masks of `training_attention`. The generator has a key per query."""
    return AttentionDropoutFunction.apply(weights, rng)  # type: ignore[no-untyped-call]


class AttentionDropoutFunction(torch.autograd.Function):
    """Dropout of attention weights. The backward pass regenerates the mask."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, rng: DropoutRng) -> Tensor:
        """Return dropout(weights)."""
        ctx.rng = rng
        return _dropout_attention(weights, rng)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        """Apply the same mask to the gradient."""
        return _dropout_attention(gradient[0], ctx.rng), None


def _dropout_attention(weights: Tensor, rng: DropoutRng) -> Tensor:
    weights = weights.contiguous()
    output = torch.empty_like(weights)
    pointers = (weights.data_ptr(), ctypes.addressof(rng), output.data_ptr())
    library().dropout_attention(*weights.shape, *pointers)
    return output


def _rows(x: Tensor, rng: DropoutRng) -> tuple[int, int]:
    """Return the number of rows that have a mask of their own, and their size."""
    return rng.rows, x.numel() // rng.rows


def dropout_add(
    x: Float[Tensor, "tokens model"], sublayer_output: Float[Tensor, "tokens model"], rng: DropoutRng
) -> Float[Tensor, "tokens model"]:
    """Return x + dropout(sublayer_output)."""
    assert x.dtype == sublayer_output.dtype == torch.float32
    return DropoutAddFunction.apply(x, sublayer_output, rng)  # type: ignore[no-untyped-call]


class DropoutAddFunction(torch.autograd.Function):
    """Dropout and residual addition in one pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sublayer_output: Tensor, rng: DropoutRng) -> Tensor:
        """Return x + dropout(sublayer_output)."""
        ctx.rng = rng
        x, sublayer_output = x.contiguous(), sublayer_output.contiguous()
        output = torch.empty_like(x)
        pointers = (x.data_ptr(), sublayer_output.data_ptr(), ctypes.addressof(rng), output.data_ptr())
        library().dropout_add(*x.shape, *pointers)
        return output

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients with respect to x and to the sublayer output."""
        x_gradient = gradient[0].contiguous()
        sublayer_gradient = torch.empty_like(x_gradient)
        pointers = (x_gradient.data_ptr(), ctypes.addressof(ctx.rng), sublayer_gradient.data_ptr())
        library().dropout_add_backward(*x_gradient.shape, *pointers)
        return x_gradient, sublayer_gradient, None


def activation_dropout(x: Float[Tensor, "*any"], activation: Activation, rng: DropoutRng) -> Float[Tensor, "*any"]:
    """Return dropout(activation(x)), in one pass."""
    return ActivationDropoutFunction.apply(x, ACTIVATION_CODES[activation], rng)  # type: ignore[no-untyped-call]


class ActivationDropoutFunction(torch.autograd.Function):
    """An activation followed by dropout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: int, rng: DropoutRng) -> Tensor:
        """Return dropout(activation(x))."""
        x = x.contiguous()
        ctx.save_for_backward(x)
        ctx.activation, ctx.rng = activation, rng
        output = torch.empty_like(x)
        pointers = (ctypes.addressof(rng), output.data_ptr())
        library().activation_dropout(*_rows(x, rng), x.data_ptr(), activation, *pointers)
        return output

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient with respect to x."""
        (x,) = ctx.saved_tensors
        output_gradient = gradient[0].contiguous()
        x_gradient = torch.empty_like(x)
        pointers = (ctypes.addressof(ctx.rng), output_gradient.data_ptr(), x_gradient.data_ptr())
        library().activation_dropout_backward(*_rows(x, ctx.rng), x.data_ptr(), ctx.activation, *pointers)
        return x_gradient, None, None


Heads = Float[Tensor, "tokens heads dim"]
KeyHeads = Float[Tensor, "key_tokens heads dim"]


def training_attention(
    query: Heads,
    key: KeyHeads,
    value: KeyHeads,
    query_lengths: RowLengths,
    key_lengths: RowLengths,
    scale: float,
    causal: bool,
    rng: DropoutRng,
) -> Float[Tensor, "tokens all"]:
    """Return softmax(Q·Kᵀ·scale)·V for a packed batch, with dropout of the attention weights."""
    options = _AttentionOptions(query_lengths, key_lengths, scale, causal, rng)
    return TrainingAttentionFunction.apply(query, key, value, options)  # type: ignore[no-untyped-call]


class _AttentionOptions:
    """The arguments of training attention that are not tensors."""

    def __init__(
        self, query_lengths: RowLengths, key_lengths: RowLengths, scale: float, causal: bool, rng: DropoutRng
    ) -> None:
        self.query_lengths, self.key_lengths = query_lengths, key_lengths
        self.scale, self.causal, self.rng = scale, causal, rng

    def make_struct(self, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> TrainingAttentionArguments:
        """Return the C struct. In the backward pass, `output` is the gradient of the output."""
        return TrainingAttentionArguments(
            self.query_lengths.count, query.shape[1], query.shape[2], self.scale, self.causal,
            query.data_ptr(), key.data_ptr(), value.data_ptr(), query.stride(0), key.stride(0), value.stride(0),
            self.query_lengths.address, self.query_lengths.offsets_address,
            self.key_lengths.address, self.key_lengths.offsets_address, self.rng,
            self.key_lengths.max_length, output.data_ptr(),
        )  # fmt: skip


class TrainingAttentionFunction(torch.autograd.Function):
    """Attention. The attention weights are not stored: the backward pass recomputes them."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, options: _AttentionOptions) -> Tensor:
        """Return the attention output."""
        query, key, value = (_contiguous_heads(x) for x in (query, key, value))
        output = query.new_empty(len(query), query.shape[1] * query.shape[2])
        struct = options.make_struct(query, key, value, output)
        library().training_attention_forward(ctypes.addressof(struct))
        ctx.save_for_backward(query, key, value)
        ctx.options = options
        return output

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients with respect to query, key and value."""
        query, key, value = ctx.saved_tensors
        output_gradient = gradient[0].contiguous()
        gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)]
        struct = ctx.options.make_struct(query, key, value, output_gradient)
        struct.query_gradient, struct.key_gradient, struct.value_gradient = (x.data_ptr() for x in gradients)
        library().training_attention_backward(ctypes.addressof(struct))
        return gradients[0], gradients[1], gradients[2], None


def _contiguous_heads(x: Tensor) -> Tensor:
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


def cross_entropy_forward_backward(
    logits: Float[Tensor, "tokens vocabulary"], targets: Int[Tensor, " tokens"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the sum of the cross-entropies. The logits are overwritten with its gradient."""
    losses = torch.empty(len(logits), dtype=torch.float64)
    library().cross_entropy_forward_backward(
        *logits.shape, logits.data_ptr(), targets.data_ptr(), label_smoothing, losses.data_ptr()
    )
    return losses.sum()


def rdrop_forward_backward(
    logits: Float[Tensor, "tokens 2 vocabulary"],
    targets: Int[Tensor, " tokens"],
    label_smoothing: float,
    rdrop_alpha: float,
) -> Float[Tensor, ""]:
    """Return the sum of both cross-entropies and of R-Drop's KL term (`training/losses/rdrop.py`).

    The logits are overwritten with the gradient.
    """
    losses = torch.empty(len(logits), dtype=torch.float64)
    pointers = (logits.data_ptr(), targets.data_ptr())
    library().rdrop_forward_backward(
        len(logits), logits.shape[2], *pointers, label_smoothing, rdrop_alpha, losses.data_ptr()
    )
    return losses.sum()
