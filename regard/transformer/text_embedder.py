"""From the hidden states of a text to its vector: pooling, then dense layers and normalisation.

    hidden states ──pool──> a vector each ──dense layers, unit length──> the embedding of each text

Sentence-BERT (Reimers and Gurevych 2019) and most encoders for semantic search have this form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import Activation, Pooling
from regard.transformer.feedforward import ACTIVATIONS
from regard.transformer.head_base import HiddenStates
from regard.transformer.pooling import pool


@dataclass(frozen=True, kw_only=True)
class DenseLayer:
    """A linear layer on the pooled vector."""

    input_dim: int
    """Size of its input."""
    output_dim: int
    """Size of its output."""
    bias: bool
    """Whether it has a bias."""
    activation: Activation | None
    """The activation after it; None for none."""


@dataclass(frozen=True, kw_only=True)
class UnitLength:
    """Divide a vector by its length, so that dot products are cosines."""


@dataclass(frozen=True, kw_only=True)
class TextEmbedding:
    """How the hidden states of a text become its vector."""

    poolings: tuple[Pooling, ...] = (Pooling.MEAN,)
    """How they are pooled; the results of several are concatenated."""
    layers: tuple[DenseLayer | UnitLength, ...] = ()
    """What follows."""
    include_prompt: bool = True
    """Whether the tokens of a prompt are pooled too."""

    @property
    def is_normalized(self) -> bool:
        """Whether all vectors have length one."""
        return bool(self.layers) and isinstance(self.layers[-1], UnitLength)

    def output_dim(self, model_dim: int) -> int:
        """Return the size of the vectors."""
        sizes = [layer.output_dim for layer in self.layers if isinstance(layer, DenseLayer)]
        return sizes[-1] if sizes else model_dim * len(self.poolings)


class TextEmbedder(nn.Module):
    """Computes the vectors of texts from their hidden states."""

    def __init__(self, design: TextEmbedding) -> None:
        super().__init__()
        self.design = design
        self.dense = nn.ModuleList(
            nn.Linear(layer.input_dim, layer.output_dim, layer.bias)
            for layer in design.layers
            if isinstance(layer, DenseLayer)
        )

    def forward(self, hidden: HiddenStates, layout: BatchLayout) -> Float[Tensor, "batch dim"]:
        """Return the vector of each text."""
        x = torch.cat([pool(pooling, hidden, layout) for pooling in self.design.poolings], dim=1)
        dense: Iterator[Any] = iter(self.dense)
        for layer in self.design.layers:
            if isinstance(layer, DenseLayer):
                linear = next(dense)
                x = linear(x.to(linear.weight.dtype))
                x = x if layer.activation is None else ACTIVATIONS[layer.activation](x)
            else:
                x = normalize(x, dim=-1)
        return x


def drop_first_tokens(
    hidden: HiddenStates, layout: BatchLayout, counts: Sequence[int]
) -> tuple[Float[Tensor, "remaining model"], BatchLayout]:
    """Remove the first tokens of each sequence, for pooling without the prompt."""
    kept = layout.column_indices >= torch.tensor(counts, device=hidden.device)[layout.row_indices]
    lengths = [length - count for length, count in zip(layout.lengths, counts, strict=True)]
    return hidden[kept], BatchLayout.of(lengths, layout.device)
