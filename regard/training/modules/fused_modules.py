"""A network made quicker to train on a CPU: some of its parts are replaced by others that compute the same.

- `Dropout` draws cheaper random numbers (`dropout.py`).
- Attention over rows of any lengths side by side, dropout with the sum behind it, and activations with the dropout
  behind them are compiled (`regard.native`), where the machine has the compiled parts.
- Elsewhere attention over short rows is computed as the equation is written: torch's fused kernel, which saves memory
  on long rows, is slower there than three small matrix products.
- Layers multiply in bfloat16 where that is asked for, by the compiled parts (`regard/native/bf16.py`).
- `words_loss` computes the loss of a language model without ever holding all its scores (`cross_entropy.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.native import bf16
from regard.native.ctypes_structs import lengths_of
from regard.native.training_ops import LANES, add_dropped, attend, bend, chance
from regard.training.losses.cross_entropy import HalfVocabulary, Vocabulary, cross_entropy
from regard.training.losses.rdrop import agreeing_cross_entropy
from regard.training.modules.dropout import Dropout, compiled
from regard.transformer.attention import Heads, KeyHeads, Looking, MultiHeadAttention
from regard.transformer.attention_kernel import Bias, Kernel, Key, Query, shared, weights
from regard.transformer.batch_layout import Rows
from regard.transformer.config import NormOrder
from regard.transformer.feedforward import KINDS, Dense, Gated
from regard.transformer.head import LanguageModel
from regard.transformer.head_base import Vectors
from regard.transformer.mask import Causal, Everything, Visible
from regard.transformer.position import Rotation
from regard.transformer.residual import Residual

SHORT = 64 * 64
"""Up to so many pairs of a query and a key, the equation is quicker than the fused kernel."""


LONG = 2048 * 2048
"""Up to so many, the compiled parts write the weights of a row and head down on the way back: 50 MB for each thread."""


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


class TrainingAttention(MultiHeadAttention):
    """Attention over rows side by side by the compiled parts, whatever their lengths, where they know the mask."""

    def _rowwise(self, query: Heads, key: KeyHeads, value: KeyHeads, looking: Looking, key_rows: Rows) -> Tensor:
        dim, mask = query.shape[2], type(looking.mask)
        known = query.shape[1] == key.shape[1] and dim % LANES == 0 and mask in (Causal, Everything)
        known = known and looking.rows.longest * key_rows.longest <= LONG
        if not known or (looking.position is not None and not isinstance(looking.position, Rotation)):
            return super()._rowwise(query, key, value, looking, key_rows)
        if self.kernel._forward_hooks or not compiled(query, key, value):
            return super()._rowwise(query, key, value, looking, key_rows)
        dropped = self.kernel.drop.dropped if self.training and isinstance(self.kernel, ShortKernel) else 0
        return attend(
            query,
            key,
            value,
            lengths_of(looking.rows.lengths),
            lengths_of(key_rows.lengths),
            self.kernel.scale,
            mask is Causal,
            chance(dropped),
        )


class TrainingResidual(Residual):
    """The connection around a sublayer, dropout and sum in one pass."""

    def forward(self, x: Vectors, sublayer: Callable[[Vectors], Vectors]) -> Vectors:
        """The sublayer's answer, connected."""
        dropped = self.dropout.dropped if self.training and isinstance(self.dropout, Dropout) else 0
        if not dropped or not compiled(x):
            return super().forward(x, sublayer)
        if self.order is NormOrder.POST:
            return self.norm(add_dropped(x, sublayer(x), chance(dropped)))
        said = sublayer(self.norm(x))
        if self.output_norm is not None:
            said = self.output_norm(said)
        return add_dropped(x, said, chance(dropped))


class TrainingDense(Dense):
    """A feed-forward layer, activation and dropout in one pass."""

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Each vector transformed."""
        up = self.up(x)
        if not (compiled(up) and isinstance(self.dropout, Dropout)):
            return self.down(self.dropout(self.activation(up)))
        dropped = self.dropout.dropped if self.training else 0
        return self.down(bend(up, KINDS[self.activation], chance(dropped)))


class TrainingGated(Gated):
    """The same with a gate, which stands between the two."""

    def forward(self, x: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
        """Each vector transformed."""
        gate = self.gate(x)
        bent = bend(gate, KINDS[self.activation], chance(0)) if compiled(gate) else self.activation(gate)
        return self.down(self.dropout(bent * self.up(x)))


class HalfLinear(nn.Linear):
    """A layer that multiplies in bfloat16 while it is trained."""

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """x·weightᵀ + bias."""
        if not self.training or not compiled(x):
            return super().forward(x)
        return bf16.linear(x.flatten(0, -2), self.weight, self.bias).view(*x.shape[:-1], -1)


class HalfLanguageModel(LanguageModel):
    """A head whose matrix of the vocabulary is multiplied in bfloat16 by the loss (`words_loss`)."""


STANDS_IN: dict[type[nn.Module], type[nn.Module]] = {
    MultiHeadAttention: TrainingAttention,
    Residual: TrainingResidual,
    Dense: TrainingDense,
    Gated: TrainingGated,
}
"""Parts that are replaced by others with the same parts."""
IN_HALF: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: HalfLinear,
    LanguageModel: HalfLanguageModel,
}
"""The same, where bfloat16 is asked for."""


def _standing_in(child: nn.Module, kind: type[nn.Module]) -> nn.Module:
    stands_in = kind.__new__(kind)
    stands_in.__dict__.update(child.__dict__)  # nothing is made anew
    return stands_in


def quicken(network: nn.Module, in_half: bool = False) -> None:
    """Replace the parts of a network that can be computed more quickly in training. Its parameters stay as they are."""
    others = {**STANDS_IN, **IN_HALF} if in_half else STANDS_IN
    for part in list(network.modules()):
        for name, child in part.named_children():
            if type(child) is nn.Dropout:
                setattr(part, name, Dropout(child.p).train(child.training))
            elif type(child) is Kernel:
                setattr(part, name, ShortKernel(child.scale, child.dropout).train(child.training))
            elif type(child) in others:
                setattr(part, name, _standing_in(child, others[type(child)]))


def words_loss(
    head: LanguageModel, hidden: Float[Tensor, "tokens model"], targets: Int[Tensor, " tokens"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The sum of the losses that a language-modelling head makes on these vectors."""
    return cross_entropy(_finished(head, hidden), head.output.weight, head.bias, targets, smoothing, _kind(head))


def agreeing_words_loss(
    head: LanguageModel,
    hidden: Float[Tensor, "twice model"],
    targets: Int[Tensor, " tokens"],
    smoothing: float,
    agreement: float,
) -> Float[Tensor, ""]:
    """The sum of the losses on two readings, one behind the other, and of what the head says differently of the two."""
    finished = _finished(head, hidden)
    both = finished.view(2, len(targets), finished.shape[1])
    return agreeing_cross_entropy(both, head.output.weight, head.bias, targets, smoothing, agreement, _kind(head))


def _kind(head: LanguageModel) -> type[Vocabulary]:
    return HalfVocabulary if isinstance(head, HalfLanguageModel) and head.training else Vocabulary


def _finished(head: LanguageModel, hidden: Float[Tensor, "tokens model"]) -> Float[Tensor, "tokens model"]:
    """The vectors that meet the matrix of the vocabulary."""
    if head.transform is not None:
        hidden = head.transform(hidden)
    return hidden * head.scale if head.scale != 1 else hidden
