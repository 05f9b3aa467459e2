"""A network made quicker to train on a CPU: some of its parts are replaced by others that compute the same.

- `Dropout` draws cheaper random numbers (`dropout.py`).
- Attention over short rows is computed as the equation is written: torch's fused kernel, which saves memory on long
  rows, is slower there than three small matrix products.
- `words_loss` computes the loss of a language model without ever holding all its scores (`cross_entropy.py`).
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.training.agreement import agreeing_cross_entropy
from regard.training.cross_entropy import cross_entropy
from regard.training.dropout import Dropout
from regard.transformer.head import LanguageModel
from regard.transformer.kernels import Bias, Kernel, Key, Query, shared, weights
from regard.transformer.mask import Visible

SHORT = 64 * 64
"""Up to so many pairs of a query and a key, the equation is quicker than the fused kernel."""


class ShortKernel(Kernel):
    """Attention as the equation says where rows are short, fused where they are long."""

    def __init__(self, scale: float, dropout: float) -> None:
        super().__init__(scale, dropout)
        self.drop = Dropout(dropout)

    def forward(self, query: Query, key: Key, value: Key, visible: Visible, bias: Bias | None) -> Query:
        """The answer to each query."""
        long = query.shape[-2] * key.shape[-2] > SHORT
        if query.device.type != "cpu" or (long and not (self.training and self.dropout)):
            return super().forward(query, key, value, visible, bias)
        return self.drop(weights(query, key, self.scale, visible, bias)) @ shared(value, query.shape[1])


def quicken(network: nn.Module) -> None:
    """Replace the parts of a network that can be computed more quickly in training. Its parameters stay as they are."""
    for part in list(network.modules()):
        for name, child in part.named_children():
            if type(child) is nn.Dropout:
                setattr(part, name, Dropout(child.p).train(child.training))
            elif type(child) is Kernel:
                setattr(part, name, ShortKernel(child.scale, child.dropout).train(child.training))


def words_loss(
    head: LanguageModel, hidden: Float[Tensor, "tokens model"], targets: Int[Tensor, " tokens"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The sum of the losses that a language-modelling head makes on these vectors."""
    return cross_entropy(_finished(head, hidden), head.output.weight, head.bias, targets, smoothing)


def agreeing_words_loss(
    head: LanguageModel,
    first: Float[Tensor, "tokens model"],
    second: Float[Tensor, "tokens model"],
    targets: Int[Tensor, " tokens"],
    smoothing: float,
    agreement: float,
) -> Float[Tensor, ""]:
    """The sum of both losses, and of what the head says differently of the two (`agreement.py`)."""
    both = (_finished(head, first), _finished(head, second))
    return agreeing_cross_entropy(*both, head.output.weight, head.bias, targets, smoothing, agreement)


def _finished(head: LanguageModel, hidden: Float[Tensor, "tokens model"]) -> Float[Tensor, "tokens model"]:
    """The vectors that meet the matrix of the vocabulary."""
    if head.transform is not None:
        hidden = head.transform(hidden)
    return hidden * head.scale if head.scale != 1 else hidden
