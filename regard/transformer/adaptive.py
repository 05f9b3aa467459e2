"""Adaptive input and output (Grave et al. 2016, Baevski and Auli 2018): rare words get smaller vectors.

The vocabulary, most frequent words first, is cut into steps. Each step has a table of its own, with smaller vectors the
rarer its words; a projection brings them to the model's size. On the way out, the first step also scores whether the
word is of one of the other steps:

    log p(word) = log p(step | first step's softmax) + log p(word | softmax of that step)
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config


def steps(design: config.AdaptiveTokens) -> list[tuple[int, int, int]]:
    """The first id, the id after the last, and the size of the vectors, step by step."""
    edges = [0, *design.cutoffs, design.vocabulary]
    return [(edges[i], edges[i + 1], design.dim // design.divisor**i) for i in range(len(edges) - 1)]


class Table(nn.Module):
    """One step's vectors."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dim))


class AdaptiveTokens(nn.Module):
    """The token tables, step by step."""

    def __init__(self, design: config.AdaptiveTokens, model_dim: int) -> None:
        super().__init__()
        self.design = design
        self.tables = nn.ModuleList(Table(end - start, dim) for start, end, dim in steps(design))
        self.projections = nn.ModuleList(nn.Linear(dim, model_dim, bias=False) for _, _, dim in steps(design))

    def forward(self, tokens: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens model"]:
        """Look the tokens up, each in the table of its step."""
        vectors = None
        for (start, end, _), table, project in zip(steps(self.design), self.tables, self.projections, strict=True):
            which = ((tokens >= start) & (tokens < end)).nonzero()[:, 0]
            assert isinstance(table, Table)
            found = project(nn.functional.embedding(tokens[which] - start, table.weight))
            if vectors is None:
                vectors = found.new_zeros(len(tokens), found.shape[1])
            vectors = vectors.index_copy(0, which, found)
        assert vectors is not None
        return vectors
