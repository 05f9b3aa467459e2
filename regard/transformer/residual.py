"""The residual connection around a sublayer, with its norm and dropout.

POST   norm(x + sublayer(x))            PRE   x + sublayer(norm(x))          BOTH   x + norm(sublayer(norm(x)))
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.config import NormOrder

HiddenStates = Float[Tensor, "tokens model"]


class Residual(nn.Module):
    """Adds the output of a sublayer to its input; `order` sets the position of the norm."""

    def __init__(self, order: NormOrder, norm: config.Norm, dim: int, dropout: float) -> None:
        super().__init__()
        self.order = order
        self.norm = normalization.build(norm, dim)
        self.output_norm = normalization.build(norm, dim) if order is NormOrder.BOTH else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: HiddenStates, sublayer: Callable[[HiddenStates], HiddenStates]) -> HiddenStates:
        """Apply the sublayer with its residual connection."""
        if self.order is NormOrder.POST:
            return self.norm(x + self.dropout(sublayer(x)))
        output = sublayer(self.norm(x))
        if self.output_norm is not None:
            output = self.output_norm(output)
        return x + self.dropout(output)
