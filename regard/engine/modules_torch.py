"""Parts whose matrices are prepared. Each stands in for one of `regard.transformer`, and is called like it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import Rounded
from regard.engine.linear import Affine, Precision, matrix, matrix_of, numbers
from regard.engine.modules_native import CompiledDense, CompiledGated, CompiledNorm, CompiledResidual
from regard.native.library import available
from regard.transformer.attention import Heads, KeyHeads, Projection
from regard.transformer.attention_kernel import Bias, Kernel, Key, Query, fused, weights
from regard.transformer.batch_layout import Rows
from regard.transformer.config import NormOrder
from regard.transformer.embedding import Tokens
from regard.transformer.feedforward import Dense, Gated
from regard.transformer.head import LanguageModel
from regard.transformer.head_base import EachToken, Scores, Vectors
from regard.transformer.mask import Visible
from regard.transformer.normalization import LayerNorm, RMSNorm
from regard.transformer.residual import Residual

FEW = 16
"""Up to so many queries of a row, attention is written out."""


class SelfProjection(nn.Module):
    """Query, key and value of the same vectors, by one matrix."""

    def __init__(self, plain: Projection, precision: Precision) -> None:
        super().__init__()
        self.head_dim = plain.head_dim
        layers = (plain.query, plain.key, plain.value)
        self.heads = [layer.out_features // plain.head_dim for layer in layers]
        self.matrix = matrix_of(layers, precision)

    def forward(self, hidden: Float[Tensor, "tokens model"]) -> tuple[Heads, KeyHeads, KeyHeads]:
        """Query, key and value."""
        found = self.matrix(hidden)
        query, key, value = found.view(len(found), -1, self.head_dim).split(self.heads, dim=1)
        return query, key, value


class CrossProjection(nn.Module):
    """Queries of some vectors, and keys and values of others: the latter two by one matrix."""

    def __init__(self, plain: Projection, precision: Precision, numbers: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.head_dim, self.numbers = plain.head_dim, numbers
        self.heads = [layer.out_features // plain.head_dim for layer in (plain.query, plain.key, plain.value)]
        self.query = matrix_of([plain.query], precision)
        self.key_value = matrix_of([plain.key, plain.value], precision)

    def forward(self, hidden: Float[Tensor, "tokens model"]) -> tuple[Heads, KeyHeads, KeyHeads]:
        """Query, key and value of the same vectors."""
        return self.asking(hidden), *self.answering(hidden)

    def asking(self, hidden: Float[Tensor, "tokens model"]) -> Heads:
        """The queries alone."""
        return self.query(hidden).view(len(hidden), -1, self.head_dim)

    def answering(self, hidden: Float[Tensor, "key_tokens model"]) -> tuple[KeyHeads, KeyHeads]:
        """The keys and values alone."""
        found = self.key_value(hidden).to(self.numbers)
        key, value = found.view(len(hidden), -1, self.head_dim).chunk(2, dim=1)
        return key, value


class QuickDense(nn.Module):
    """down(activation(up(x)))."""

    def __init__(self, plain: Dense, precision: Precision) -> None:
        super().__init__()
        self.up, self.down = matrix_of([plain.up], precision), matrix_of([plain.down], precision)
        self.activation = plain.activation

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Each vector transformed."""
        return self.down(self.activation(self.up(x)))


class QuickGated(nn.Module):
    """down(activation(gate(x)) · up(x)), gate and up by one matrix."""

    def __init__(self, plain: Gated, precision: Precision) -> None:
        super().__init__()
        self.gate_up, self.down = matrix_of([plain.gate, plain.up], precision), matrix_of([plain.down], precision)
        self.activation = plain.activation

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Each vector transformed."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.activation(gate).mul_(up))


class QuickResidual(nn.Module):
    """The connection around a sublayer, without dropout."""

    def __init__(self, plain: Residual) -> None:
        super().__init__()
        self.before = plain.order is not NormOrder.POST
        self.norm, self.output_norm = plain.norm, plain.output_norm

    def forward(self, x: Vectors, sublayer: Callable[[Vectors], Vectors]) -> Vectors:
        """The sublayer's answer, connected."""
        if not self.before:
            return self.norm(x + sublayer(x))
        said = sublayer(self.norm(x))
        return x + (said if self.output_norm is None else self.output_norm(said))


class QuickKernel(Kernel):
    """Attention of a few queries, such as the beams of a text: written out, which is quicker there than torch's fused
    kernel. Which way is taken does not depend on the texts beside."""

    def forward(self, query: Query, key: Key, value: Key, visible: Visible, bias: Bias | None) -> Query:
        """The answer to each query."""
        if not 1 < query.shape[2] <= FEW or query.shape[1] != key.shape[1]:
            return fused(query, key, value, self.scale, visible, bias)
        return weights(query, key, self.scale, visible, bias) @ value


class QuickLanguageModel(EachToken):
    """Scores every token of the vocabulary at every position."""

    def __init__(self, plain: LanguageModel, precision: Precision) -> None:
        super().__init__()
        self.transform = plain.transform
        weight, bias = numbers(plain.output), None if plain.bias is None else plain.bias.detach()
        if plain.scale != 1:  # of the vectors, which is one of the matrix
            weight = weight.times(plain.scale) if isinstance(weight, Rounded) else weight * plain.scale
        self.matrix = matrix(Affine(weight, bias), precision)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores at each position."""
        del rows
        return Scores(words=self.matrix(x if self.transform is None else self.transform(x)))


class RoundedTokens(nn.Module):
    """A token table in levels: only the rows that are looked up become numbers."""

    def __init__(self, plain: Rounded) -> None:
        super().__init__()
        self.levels = nn.Buffer(plain.levels, persistent=False)
        self.scale = nn.Parameter(plain.scale, requires_grad=False)

    def forward(self, tokens: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        """Look the tokens up."""
        return self.levels[tokens] * self.scale[tokens, None]


def quicker(part: nn.Module, precision: Precision) -> nn.Module | None:
    """What stands in for a part, if there is something quicker."""
    if available() and (found := _compiled(part, precision)) is not None:
        return found
    match part:
        case Dense():
            return QuickDense(part, precision)
        case Gated():
            return QuickGated(part, precision)
        case LanguageModel():
            return QuickLanguageModel(part, precision)
        case Residual():
            return QuickResidual(part)
        case Kernel():
            return QuickKernel(part.scale, part.dropout).eval()
        case Tokens():
            table = numbers(part)
            return RoundedTokens(table) if isinstance(table, Rounded) else None
        case _:
            return None


def _compiled(part: nn.Module, precision: Precision) -> nn.Module | None:
    """The same among the compiled parts."""
    match part:
        case Dense():
            return CompiledDense(part, precision)
        case Gated():
            return CompiledGated(part, precision)
        case Residual():
            return CompiledResidual(part)
        case LayerNorm() | RMSNorm():
            return CompiledNorm(part)
        case _:
            return None
