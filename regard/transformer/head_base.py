"""Base classes of heads, their output, and the transform before the output layer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.feedforward import ACTIVATIONS

HiddenStates = Float[Tensor, "tokens model"]
LinearArguments = tuple[
    Float[Tensor, "tokens dim"], Float[Tensor, "vocabulary dim"], Float[Tensor, " vocabulary"] | None
]
"""Input, weight and bias of the linear layer to the vocabulary."""


@dataclass(frozen=True)
class HeadOutput:
    """Output of a head: token-level logits, sequence-level logits, or both; or a vector for each sequence."""

    token_logits: Float[Tensor, "tokens labels"] | None = None
    sequence_logits: Float[Tensor, "batch sentence_labels"] | None = None
    pooled: Float[Tensor, "batch dim"] | None = None
    """The vectors of a head that does not score (`Pooler`, `Features`)."""


class LogitsAt(Enum):
    """The tokens for which logits are computed."""

    ALL = auto()
    LAST = auto()
    """Only the last of each sequence: enough to generate the next token, and the output projection is expensive."""


class Transform(nn.Module):
    """A linear layer, an activation, and optionally a norm."""

    def __init__(self, design: config.Transform, dim: int, output_dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, output_dim)
        self.activation = ACTIVATIONS[design.activation]
        self.norm = normalization.build(design.norm, output_dim) if design.norm else None

    def forward(self, x: Float[Tensor, "*any dim"]) -> Float[Tensor, "*any output"]:
        """Transform each vector."""
        x = self.activation(self.dense(x))
        return x if self.norm is None else self.norm(x)


class PerTokenHead(nn.Module):
    """A head whose logits for a token depend only on the hidden state of that token."""

    per_token = True


@runtime_checkable
class VocabularyHead(Protocol):
    """A per-token head that ends with a linear layer to the vocabulary, which a fused loss can compute in chunks."""

    training: bool

    def output_projection(self, hidden: HiddenStates) -> LinearArguments:
        """Return the input, the weight and the bias of the linear layer."""


class HeadWithTokens(nn.Module):
    """A head that also needs the token ids, because it pools at a particular token."""
