"""Pooling to one vector per sequence, and the heads that use it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import AtToken, HighestToken, Pooling
from regard.transformer.embedding import EmbeddingInput
from regard.transformer.head_base import HeadOutput, HeadWithTokens, HiddenStates, Transform


def pool(pooling: Pooling, x: HiddenStates, layout: BatchLayout) -> Float[Tensor, "batch model"]:
    """Pool the hidden states of each sequence to one vector."""
    match pooling:
        case Pooling.FIRST:
            return x[layout.first_indices]
        case Pooling.LAST:
            return x[layout.last_indices]
        case Pooling.MEAN:
            total = x.new_zeros(layout.batch_size, x.shape[1]).index_add(0, layout.row_indices, x)
            return total / torch.tensor(layout.lengths, device=x.device)[:, None]
        case Pooling.MEAN_SQRT:
            total = x.new_zeros(layout.batch_size, x.shape[1]).index_add(0, layout.row_indices, x)
            return total / torch.tensor(layout.lengths, device=x.device, dtype=x.dtype)[:, None].sqrt()
        case Pooling.WEIGHTED_MEAN:
            weights = (layout.column_indices + 1).to(x.dtype)
            total = x.new_zeros(layout.batch_size, x.shape[1]).index_add(0, layout.row_indices, x * weights[:, None])
            return total / x.new_zeros(layout.batch_size).index_add(0, layout.row_indices, weights)[:, None]
        case Pooling.MAX:
            rows = layout.row_indices[:, None].expand_as(x)
            return x.new_full((layout.batch_size, x.shape[1]), -torch.inf).scatter_reduce(0, rows, x, "amax")
        case Pooling.MEAN_AFTER_FIRST:
            not_first = layout.column_indices > 0
            total = x.new_zeros(layout.batch_size, x.shape[1]).index_add(0, layout.row_indices[not_first], x[not_first])
            return total / (torch.tensor(layout.lengths, device=x.device)[:, None] - 1)


def token_index(
    pooling: AtToken | HighestToken, tokens: Int[Tensor, " tokens"], layout: BatchLayout
) -> Int[Tensor, " batch"]:
    """Return the packed index of the token that each sequence is pooled at: the first, if there are several."""
    match pooling:
        case AtToken(token=token):
            matches = tokens == token
        case HighestToken():
            lowest = tokens.new_zeros(layout.batch_size)
            matches = tokens == lowest.scatter_reduce(0, layout.row_indices, tokens, "amax")[layout.row_indices]
    end = len(tokens)
    indices = torch.arange(end, device=tokens.device).where(matches, end)
    first = tokens.new_full((layout.batch_size,), end).scatter_reduce(0, layout.row_indices, indices, "amin")
    if bool((first == end).any()):
        row = int((first == end).nonzero()[0, 0])
        raise ValueError(f"sequence {row} does not contain the token that {pooling} pools at: append it to every text")
    return first


class Classification(nn.Module):
    """Sequence classification: logits of the labels for each sequence."""

    def __init__(self, design: config.Classification, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.input_dropout = nn.Dropout(design.input_dropout)
        self.transform = Transform(design.transform, model_dim, model_dim) if design.transform else None
        self.dropout = nn.Dropout(design.dropout)
        self.output = nn.Linear(model_dim, design.labels, design.bias)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the logits of each sequence."""
        pooled = self.input_dropout(pool(self.pooling, x, layout))
        if self.transform is not None:
            pooled = self.transform(pooled)
        return HeadOutput(sequence_logits=self.output(self.dropout(pooled)))


class Pooler(nn.Module):
    """Pools each sequence to one vector, for use as features."""

    def __init__(self, design: config.Pooler, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.transform = Transform(design.transform, model_dim, model_dim)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the vector of each sequence."""
        return HeadOutput(pooled=self.transform(pool(self.pooling, x, layout)))


class Features(HeadWithTokens):
    """Pools each sequence to an embedding, for comparison with others (CLIP)."""

    def __init__(self, design: config.Features, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.norm = normalization.build(design.norm, model_dim) if design.norm else None
        self.projection = None if design.projection is None else nn.Linear(model_dim, design.projection, bias=False)

    def forward(self, x: HiddenStates, layout: BatchLayout, tokens: EmbeddingInput) -> HeadOutput:
        """Return the vector of each sequence."""
        if isinstance(self.pooling, Pooling):
            pooled = pool(self.pooling, x, layout)
        else:
            assert isinstance(tokens, Tensor)
            pooled = x[token_index(self.pooling, tokens, layout)]
        if self.norm is not None:
            pooled = self.norm(pooled)
        return HeadOutput(pooled=pooled if self.projection is None else self.projection(pooled))


class PatchClassification(nn.Module):
    """Image classification from the mean of the patches."""

    def __init__(self, design: config.PatchClassification, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.unused_norm = normalization.build(design.unused_norm, model_dim)
        self.output = nn.Linear(model_dim, design.labels)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the logits of each image."""
        return HeadOutput(sequence_logits=self.output(pool(self.pooling, x, layout)))
