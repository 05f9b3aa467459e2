"""Faster modules for training on a CPU, which replace modules of the network and compute the same.

- `Dropout` draws cheaper random numbers (`dropout.py`).
- Attention over a packed batch, dropout with the residual sum, and activations with dropout are native kernels
  (`regard.native`), if the native library is available.
- Otherwise attention over short sequences is computed as in the equation: torch's fused kernel, which saves memory on
  long sequences, is slower there than three small matrix products.
- Linear layers multiply in bfloat16 with native kernels, if the recipe sets that precision (`regard/native/bf16.py`).
- `lm_head_loss` computes the loss of a language model without storing all its logits (`cross_entropy.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.native import bf16
from regard.native.ctypes_structs import row_lengths
from regard.native.training_ops import (
    HEAD_DIM_MULTIPLE,
    activation_dropout,
    dropout_add,
    make_dropout_rng,
    training_attention,
)
from regard.training.losses.cross_entropy import Bf16VocabularyProjection, VocabularyProjection, linear_cross_entropy
from regard.training.losses.rdrop import rdrop_cross_entropy
from regard.training.modules.draw_scope import MaskPer, draw_scope, enter_scope
from regard.training.modules.dropout import Dropout, has_native_kernels
from regard.transformer.attention import AttentionContext, Heads, KeyHeads, MultiHeadAttention
from regard.transformer.attention_kernel import AttentionKernel, Bias, Key, Query, attention_weights, repeat_kv
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.block import Block
from regard.transformer.config import NormOrder
from regard.transformer.embedding import Embedding, EmbeddingInput
from regard.transformer.feedforward import ACTIVATION_OF, Dense, Gated
from regard.transformer.head import LanguageModel
from regard.transformer.head_base import HiddenStates, VocabularyHead
from regard.transformer.mask import AttentionMask, Causal, Everything
from regard.transformer.pooling import Classification
from regard.transformer.position import RelativeWaves, Rotation
from regard.transformer.residual import Residual
from regard.transformer.stack import Stack

MAX_EAGER_SCORES = 64 * 64
"""Up to this many pairs of query and key, the plain equation is faster than torch's fused kernel."""
MAX_NATIVE_SCORES = 2048 * 2048
"""Largest number of pairs for the native kernel, whose backward pass stores the weights of a sequence and head: 50 MB
per thread."""


class TrainingKernel(AttentionKernel):
    """Attention by the plain equation for short sequences, by torch's fused kernel for long ones."""

    def __init__(self, scale: float, dropout: float) -> None:
        super().__init__(scale, dropout)
        self.drop = Dropout(dropout)

    def forward(self, query: Query, key: Key, value: Key, attention_mask: AttentionMask, bias: Bias | None) -> Query:
        """Attend to the values."""
        is_long = query.shape[-2] * key.shape[-2] > MAX_EAGER_SCORES
        if query.device.type != "cpu" or (is_long and not (self.training and self.dropout)):
            return super().forward(query, key, value, attention_mask, bias)
        weights = self.drop.drop_attention(attention_weights(query, key, self.scale, attention_mask, bias))
        return weights @ repeat_kv(value, query.shape[1])


class TrainingAttention(MultiHeadAttention):
    """Attention over a packed batch by the native kernel, for the masks and shapes that it supports."""

    def _attend_packed(
        self, query: Heads, key: KeyHeads, value: KeyHeads, context: AttentionContext, key_layout: BatchLayout
    ) -> Tensor:
        dim, mask = query.shape[2], type(context.mask)
        supported = query.shape[1] == key.shape[1] and dim % HEAD_DIM_MULTIPLE == 0 and mask in (Causal, Everything)
        supported = supported and context.layout.longest * key_layout.longest <= MAX_NATIVE_SCORES
        if not supported or (context.position is not None and not isinstance(context.position, Rotation)):
            return super()._attend_packed(query, key, value, context, key_layout)
        if self.kernel._forward_hooks or not has_native_kernels(query, key, value):
            return super()._attend_packed(query, key, value, context, key_layout)
        kernel = self.kernel
        return training_attention(
            query,
            key,
            value,
            row_lengths(context.layout.lengths),
            row_lengths(key_layout.lengths),
            self.kernel.scale,
            mask is Causal,
            kernel.drop.attention_rng() if isinstance(kernel, TrainingKernel) else make_dropout_rng(0),
        )


class TrainingResidual(Residual):
    """The residual connection, with dropout and sum in one pass."""

    def forward(self, x: HiddenStates, sublayer: Callable[[HiddenStates], HiddenStates]) -> HiddenStates:
        """Add the output of the sublayer to its input."""
        dropout = self.dropout
        if not (self.training and isinstance(dropout, Dropout) and dropout.drop_threshold and has_native_kernels(x)):
            return super().forward(x, sublayer)
        if self.order is NormOrder.POST:
            return self.norm(_dropout_add(x, sublayer(x), dropout))
        output = sublayer(self.norm(x))
        if self.output_norm is not None:
            output = self.output_norm(output)
        return _dropout_add(x, output, dropout)


def _dropout_add(x: HiddenStates, output: HiddenStates, dropout: Dropout) -> HiddenStates:
    """Return x + dropout(output). Under autocast the output is bfloat16, and the kernel reads float32."""
    return dropout_add(x, output.to(x.dtype), dropout.make_rng(x))


class TrainingDense(Dense):
    """A feed-forward layer, with activation and dropout in one pass."""

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Transform each hidden state."""
        up = self.up(x)
        if not (has_native_kernels(up) and isinstance(self.dropout, Dropout)):
            return self.down(self.dropout(self.activation(up)))
        return self.down(activation_dropout(up, ACTIVATION_OF[self.activation], self.dropout.make_rng(up)))


class TrainingGated(Gated):
    """A gated feed-forward layer with a native activation. Dropout is not fused with it: the product with `up(x)` comes
    between them."""

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Transform each hidden state."""
        gate = self.gate(x)
        activated = (
            activation_dropout(gate, ACTIVATION_OF[self.activation], make_dropout_rng(0))
            if has_native_kernels(gate)
            else self.activation(gate)
        )
        return self.down(self.dropout(activated * self.up(x)))


class Bf16Linear(nn.Linear):
    """A linear layer that multiplies in bfloat16 in training."""

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """Compute x·weightᵀ + bias."""
        if not self.training or not has_native_kernels(x):
            return super().forward(x)
        return bf16.linear(x.flatten(0, -2), self.weight, self.bias).view(*x.shape[:-1], -1)


class Bf16LanguageModel(LanguageModel):
    """A language-modelling head whose output projection is multiplied in bfloat16 by `lm_head_loss`."""

    bf16_projection = True


class TrainingEmbedding(Embedding):
    """An embedding: the sequences of the batch are known from here on (`draw_scope.py`)."""

    def forward(
        self, tokens: EmbeddingInput, layout: BatchLayout, segments: Int[Tensor, " tokens"] | None = None
    ) -> Float[Tensor, "tokens model"]:
        """Embed tokens or images."""
        enter_scope(layout)
        return super().forward(tokens, layout, segments)


class TrainingBlock(Block):
    """A block whose random draws depend on the sequences, also when gradient checkpointing runs it again."""

    def forward(
        self, x: Float[Tensor, "tokens model"], context: AttentionContext, *inputs: Any, **options: Any
    ) -> Float[Tensor, "tokens model"]:
        """Pass the tokens of a batch through the layer."""
        with draw_scope(context.layout, context.layer):
            return super().forward(x, context, *inputs, **options)


class TrainingStack(Stack):
    """A stack whose random draws depend on the sequences."""

    def forward(
        self, x: Float[Tensor, "tokens model"], layout: BatchLayout, *inputs: Any, **options: Any
    ) -> Float[Tensor, "tokens model"]:
        """Pass the tokens of a batch through all blocks."""
        with draw_scope(layout):
            return super().forward(x, layout, *inputs, **options)


REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    MultiHeadAttention: TrainingAttention,
    Residual: TrainingResidual,
    Dense: TrainingDense,
    Gated: TrainingGated,
    Embedding: TrainingEmbedding,
    Block: TrainingBlock,
    Stack: TrainingStack,
}
"""Modules that are replaced by a subclass with the same submodules."""
MASKS: dict[type[nn.Module], MaskPer] = {Classification: MaskPer.SEQUENCE, RelativeWaves: MaskPer.BATCH}
"""Modules whose dropout has masks for something else than tokens."""
BF16_REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: Bf16Linear,
    LanguageModel: Bf16LanguageModel,
}
"""Additional replacements for bfloat16."""


def _convert_module(module: nn.Module, subclass: type[nn.Module]) -> nn.Module:
    """Return an instance of a subclass with the same attributes and parameters."""
    converted = subclass.__new__(subclass)
    converted.__dict__.update(module.__dict__)
    return converted


def fuse_modules(network: nn.Module, bf16: bool = False) -> None:
    """Replace modules of a network by faster ones, in place. The parameters are kept."""
    replacements = {**REPLACEMENTS, **BF16_REPLACEMENTS} if bf16 else REPLACEMENTS
    for module in list(network.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p).train(child.training))
            elif type(child) is AttentionKernel:
                setattr(module, name, TrainingKernel(child.scale, child.dropout).train(child.training))
            elif type(child) in replacements:
                setattr(module, name, _convert_module(child, replacements[type(child)]))
    for address, module in network.named_modules():
        for name, child in module.named_children():
            if isinstance(child, Dropout):
                child.set_address(f"{address}.{name}", MASKS.get(type(module), MaskPer.TOKEN))


def lm_head_loss(
    head: VocabularyHead,
    hidden: Float[Tensor, "tokens model"],
    targets: Int[Tensor, " tokens"],
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the summed cross-entropy of a language-modelling head on these hidden states."""
    return linear_cross_entropy(*head.output_projection(hidden), targets, label_smoothing, _projection_class(head))


def lm_head_rdrop_loss(
    head: VocabularyHead,
    hidden: Float[Tensor, "twice model"],
    targets: Int[Tensor, " tokens"],
    label_smoothing: float,
    rdrop_alpha: float,
) -> Float[Tensor, ""]:
    """Return the summed R-Drop loss. `hidden` has the states of the first forward pass, then those of the second."""
    hidden, weight, bias = head.output_projection(hidden)
    hidden_pair = hidden.view(2, len(targets), hidden.shape[1])
    return rdrop_cross_entropy(
        hidden_pair, weight, bias, targets, label_smoothing, rdrop_alpha, _projection_class(head)
    )


def _projection_class(head: VocabularyHead) -> type[VocabularyProjection]:
    bf16_projection = head.training and getattr(head, "bf16_projection", False)
    return Bf16VocabularyProjection if bf16_projection else VocabularyProjection
