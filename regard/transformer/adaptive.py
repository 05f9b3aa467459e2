"""Adaptive embedding and adaptive softmax (Grave et al. 2016, Baevski and Auli 2018): smaller vectors for rare tokens.

The vocabulary, sorted by frequency, is divided into clusters. Each cluster has its own embedding matrix; the rarer its
tokens, the smaller the vectors. A projection maps them to the size of the model. In the adaptive softmax, the first
cluster also has a logit for each of the other clusters:

    log p(token) = log p(cluster | softmax of the first cluster) + log p(token | softmax of that cluster)
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import Weights
from regard.transformer.head_base import HeadOutput, PerTokenHead


def clusters(design: config.AdaptiveTokens) -> list[tuple[int, int, int]]:
    """Return the first id, the end id (exclusive) and the vector size of each cluster."""
    edges = [0, *design.cutoffs, design.vocabulary]
    return [(edges[i], edges[i + 1], design.dim // design.divisor**i) for i in range(len(edges) - 1)]


class ClusterTable(nn.Module):
    """Embedding matrix of one cluster."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dim))


class AdaptiveTokens(nn.Module):
    """Adaptive token embedding: a matrix and a projection per cluster."""

    def __init__(self, design: config.AdaptiveTokens, model_dim: int) -> None:
        super().__init__()
        self.design = design
        self.tables = nn.ModuleList(ClusterTable(end - start, dim) for start, end, dim in clusters(design))
        self.projections = nn.ModuleList(nn.Linear(dim, model_dim, bias=False) for _, _, dim in clusters(design))

    def forward(self, tokens: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens model"]:
        """Look up each token in the matrix of its cluster."""
        vectors = None
        for (start, end, _), table, project in zip(clusters(self.design), self.tables, self.projections, strict=True):
            indices = ((tokens >= start) & (tokens < end)).nonzero()[:, 0]
            assert isinstance(table, ClusterTable)
            embedded = project(nn.functional.embedding(tokens[indices] - start, table.weight))
            if vectors is None:
                vectors = embedded.new_zeros(len(tokens), embedded.shape[1])
            vectors = vectors.index_copy(0, indices, embedded)
        assert vectors is not None
        return vectors


class AdaptiveLanguageModel(PerTokenHead):
    """Adaptive softmax: log-probabilities of all tokens, cluster by cluster."""

    def __init__(self, design: config.AdaptiveLanguageModel, model_dim: int, tokens: AdaptiveTokens) -> None:
        super().__init__()
        self.clusters = clusters(tokens.design)
        untied = AdaptiveTokens(tokens.design, model_dim)
        self.tables = tokens.tables if design.tables is Weights.TIED else untied.tables
        self.projections = nn.ModuleList(
            (tokens if tie is Weights.TIED else untied).projections[i] for i, tie in enumerate(design.projections)
        )
        self.biases = nn.ParameterList(torch.empty(end - start) for start, end, _ in self.clusters)
        tail_clusters = len(self.clusters) - 1
        self.step_weight = nn.Parameter(torch.empty(tail_clusters, tokens.design.dim)) if tail_clusters else None
        """Rows of the first softmax for the other clusters."""
        self.step_bias = nn.Parameter(torch.empty(tail_clusters)) if tail_clusters else None

    def forward(self, x: Float[Tensor, "tokens model"], layout: BatchLayout) -> HeadOutput:
        """Return the log-probabilities at each position."""
        del layout
        outputs = []
        first: Tensor | None = None
        for cluster, (table, project) in enumerate(zip(self.tables, self.projections, strict=True)):
            assert isinstance(table, ClusterTable)
            assert isinstance(project, nn.Linear)
            weight: Tensor = table.weight
            bias: Tensor = self.biases[cluster]
            if cluster == 0 and self.step_weight is not None and self.step_bias is not None:
                weight, bias = torch.cat([weight, self.step_weight]), torch.cat([bias, self.step_bias])
            log_probs = nn.functional.linear(x @ project.weight, weight, bias).log_softmax(dim=-1)
            if first is None:
                first, outputs = log_probs, [log_probs[:, : self.clusters[0][1]]]
            else:
                outputs.append(log_probs + first[:, self.clusters[0][1] + cluster - 1, None])
        return HeadOutput(token_logits=torch.cat(outputs, dim=1))
