"""The connection around every sublayer, written once.

POST   norm(x + sublayer(x))            PRE   x + sublayer(norm(x))          BOTH   x + norm(sublayer(norm(x)))
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.config import NormOrder

Vectors = Float[Tensor, "tokens model"]


class Residual(nn.Module):
    """Adds what a sublayer says to what was there before, with dropout and the norm in its place."""

    def __init__(self, order: NormOrder, norm: config.Norm, dim: int, dropout: float) -> None:
        super().__init__()
        self.order = order
        self.norm = normalization.build(norm, dim)
        self.output_norm = normalization.build(norm, dim) if order is NormOrder.BOTH else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Vectors, sublayer: Callable[[Vectors], Vectors]) -> Vectors:
        """The sublayer's answer, connected."""
        if self.order is NormOrder.POST:
            return self.norm(x + self.dropout(sublayer(x)))
        said = sublayer(self.norm(x))
        if self.output_norm is not None:
            said = self.output_norm(said)
        return x + self.dropout(said)
