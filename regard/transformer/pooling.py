"""One vector for each row, and the heads that begin with it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.batch_layout import Rows
from regard.transformer.config import AtToken, HighestToken, Pooling
from regard.transformer.embedding import Given
from regard.transformer.head_base import LooksForTokens, Scores, Transform, Vectors


def pool(pooling: Pooling, x: Vectors, rows: Rows) -> Float[Tensor, "batch model"]:
    """One vector for each row."""
    match pooling:
        case Pooling.FIRST:
            return x[rows.first]
        case Pooling.LAST:
            return x[rows.last]
        case Pooling.MEAN:
            total = x.new_zeros(rows.batch, x.shape[1]).index_add(0, rows.row_of, x)
            return total / torch.tensor(rows.lengths, device=x.device)[:, None]
        case Pooling.MEAN_AFTER_FIRST:
            later = rows.columns > 0
            total = x.new_zeros(rows.batch, x.shape[1]).index_add(0, rows.row_of[later], x[later])
            return total / (torch.tensor(rows.lengths, device=x.device)[:, None] - 1)


def place(pooling: AtToken | HighestToken, tokens: Int[Tensor, " tokens"], rows: Rows) -> Int[Tensor, " batch"]:
    """Where the token stands that each row is pooled at: its first place, if there are several."""
    match pooling:
        case AtToken(token=token):
            found = tokens == token
        case HighestToken():
            lowest = tokens.new_zeros(rows.batch)
            found = tokens == lowest.scatter_reduce(0, rows.row_of, tokens, "amax")[rows.row_of]
    end = len(tokens)
    at = torch.arange(end, device=tokens.device).where(found, end)
    first = tokens.new_full((rows.batch,), end).scatter_reduce(0, rows.row_of, at, "amin")
    if bool((first == end).any()):
        row = int((first == end).nonzero()[0, 0])
        raise ValueError(f"row {row} is to be pooled at {pooling}, and has no such token: end every text with it")
    return first


class Classification(nn.Module):
    """Scores every label, once for each row."""

    def __init__(self, design: config.Classification, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.input_dropout = nn.Dropout(design.input_dropout)
        self.transform = Transform(design.transform, model_dim, model_dim) if design.transform else None
        self.dropout = nn.Dropout(design.dropout)
        self.output = nn.Linear(model_dim, design.labels, design.bias)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores of each row."""
        pooled = self.input_dropout(pool(self.pooling, x, rows))
        if self.transform is not None:
            pooled = self.transform(pooled)
        return Scores(sentence=self.output(self.dropout(pooled)))


class Pooler(nn.Module):
    """Gives one vector for each row, for use as features."""

    def __init__(self, design: config.Pooler, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.transform = Transform(design.transform, model_dim, model_dim)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The vector of each row."""
        return Scores(sentence=self.transform(pool(self.pooling, x, rows)))


class Features(LooksForTokens):
    """Gives one vector for each row, to be compared with others."""

    def __init__(self, design: config.Features, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.norm = normalization.build(design.norm, model_dim) if design.norm else None
        self.projection = None if design.projection is None else nn.Linear(model_dim, design.projection, bias=False)

    def forward(self, x: Vectors, rows: Rows, tokens: Given) -> Scores:
        """The vector of each row."""
        if isinstance(self.pooling, Pooling):
            pooled = pool(self.pooling, x, rows)
        else:
            assert isinstance(tokens, Tensor)
            pooled = x[place(self.pooling, tokens, rows)]
        if self.norm is not None:
            pooled = self.norm(pooled)
        return Scores(sentence=pooled if self.projection is None else self.projection(pooled))


class PatchClassification(nn.Module):
    """Scores every label, once for each image, from the mean of its patches."""

    def __init__(self, design: config.PatchClassification, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.unused_norm = normalization.build(design.unused_norm, model_dim)
        self.output = nn.Linear(model_dim, design.labels)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores of each image."""
        return Scores(sentence=self.output(pool(self.pooling, x, rows)))
