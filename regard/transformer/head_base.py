"""What every head is made of: its scores, the layer before its last one, and what it has to know."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.feedforward import ACTIVATIONS

Vectors = Float[Tensor, "tokens model"]


@dataclass(frozen=True)
class Scores:
    """What a head says: of each token, of each row, or both."""

    words: Float[Tensor, "tokens labels"] | None = None
    sentence: Float[Tensor, "batch sentence_labels"] | None = None


class Scored(Enum):
    """Which tokens a head is asked about."""

    ALL = auto()
    LAST = auto()
    """The last of each row: all that is needed to write the next, and to score a vocabulary is dear."""


class Transform(nn.Module):
    """A layer, an activation, and perhaps a norm."""

    def __init__(self, design: config.Transform, dim: int, output_dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, output_dim)
        self.activation = ACTIVATIONS[design.activation]
        self.norm = normalization.build(design.norm, output_dim) if design.norm else None

    def forward(self, x: Float[Tensor, "*any dim"]) -> Float[Tensor, "*any output"]:
        """Each vector transformed."""
        x = self.activation(self.dense(x))
        return x if self.norm is None else self.norm(x)


class EachToken(nn.Module):
    """A head that scores each token by its own vector: what stands beside it changes nothing."""


class LooksForTokens(nn.Module):
    """A head that is called with the tokens too, because it looks for one of them."""
