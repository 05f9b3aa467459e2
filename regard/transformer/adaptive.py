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
from regard.transformer.batch_layout import Rows
from regard.transformer.config import Weights
from regard.transformer.head_base import EachToken, Scores


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


class AdaptiveLanguageModel(EachToken):
    """Log-probabilities of all tokens, step by step."""

    def __init__(self, design: config.AdaptiveLanguageModel, model_dim: int, tokens: AdaptiveTokens) -> None:
        super().__init__()
        self.steps = steps(tokens.design)
        own = AdaptiveTokens(tokens.design, model_dim)
        self.tables = tokens.tables if design.tables is Weights.TIED else own.tables
        self.projections = nn.ModuleList(
            (tokens if tie is Weights.TIED else own).projections[i] for i, tie in enumerate(design.projections)
        )
        self.biases = nn.ParameterList(torch.empty(end - start) for start, end, _ in self.steps)
        others = len(self.steps) - 1
        self.step_weight = nn.Parameter(torch.empty(others, tokens.design.dim)) if others else None
        self.step_bias = nn.Parameter(torch.empty(others)) if others else None

    def forward(self, x: Float[Tensor, "tokens model"], rows: Rows) -> Scores:
        """The log-probabilities at each position."""
        del rows
        said = []
        first: Tensor | None = None
        for step, (table, project) in enumerate(zip(self.tables, self.projections, strict=True)):
            assert isinstance(table, Table)
            assert isinstance(project, nn.Linear)
            weight: Tensor = table.weight
            bias: Tensor = self.biases[step]
            if step == 0 and self.step_weight is not None and self.step_bias is not None:
                weight, bias = torch.cat([weight, self.step_weight]), torch.cat([bias, self.step_bias])
            scores = nn.functional.linear(x @ project.weight, weight, bias).log_softmax(dim=-1)
            if first is None:
                first, said = scores, [scores[:, : self.steps[0][1]]]
            else:
                said.append(scores + first[:, self.steps[0][1] + step - 1, None])
        return Scores(words=torch.cat(said, dim=1))
