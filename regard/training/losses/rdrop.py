"""The loss of a language model that was asked twice and is to say the same (R-Drop), without holding all its scores.

With p and q the two answers at a place, log p − log q = d and w for the weight of their agreement,

    loss = loss(p) + loss(q) + w · ½ · (KL(p ‖ q) + KL(q ‖ p)),    KL(p ‖ q) = Σ p·d,    KL(q ‖ p) = −Σ q·d

and the gradient of the last term by the scores of p is w/2 · (p·(d − KL(p ‖ q)) + p − q); by those of q it is the same
with the two exchanged. The rest is as in `cross_entropy.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.native.training_ops import lose_twice
from regard.training.losses.cross_entropy import SCORES, Gradients, Vocabulary
from regard.training.modules.dropout import compiled

Twice = Float[Tensor, "2 tokens dim"]


def agreeing_cross_entropy(
    both: Twice,
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    targets: Int[Tensor, " tokens"],
    smoothing: float,
    agreement: float,
    kind: type[Vocabulary] = Vocabulary,
) -> Float[Tensor, ""]:
    """The sum of both losses of all tokens, and of their disagreement, when both are scored by `weight` and `bias`."""
    return LoseTwice.apply(both, weight, bias, targets, smoothing, agreement, kind)  # type: ignore[no-untyped-call]


class LoseTwice(torch.autograd.Function):
    """The loss, and its gradient in the same pass."""

    @staticmethod
    def forward(
        ctx: Any,
        both: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        agreement: float,
        kind: type[Vocabulary],
    ) -> Tensor:
        """The loss. The gradients are computed on the way.

        The two vectors of a token stand side by side here: the matrix and its gradient are gone through once for both.
        """
        wanted = (True, *ctx.needs_input_grad[1:3])
        x, vocabulary = both.transpose(0, 1).flatten(0, 1), kind(weight, bias)
        gradients = Gradients(x, vocabulary, wanted)
        size = max(1, SCORES // (2 * len(weight)))
        total = x.new_zeros(())
        for start in range(0, len(targets), size):
            place = slice(2 * start, 2 * (start + size))
            aims = targets[start : start + size]
            if compiled(x, weight):
                scores = vocabulary.scores(x[place])
                total += lose_twice(scores.view(-1, 2, len(weight)), aims.contiguous(), smoothing, agreement)
                gradients.add_scored(place.start, x[place], scores)
                continue
            logs = functional.linear(x[place], weight, bias).log_softmax(dim=1)
            chances, twice = logs.exp(), aims.repeat_interleave(2)
            total -= (1 - smoothing) * logs.gather(1, twice[:, None]).sum() + smoothing * logs.mean(dim=1).sum()
            apart, between = (values[0::2] - values[1::2] for values in (logs, chances))
            for chance, sign in ((chances[0::2], 1), (chances[1::2], -1)):
                weighted = chance * apart
                divergence = weighted.sum(dim=1, keepdim=True)
                total += sign * agreement / 2 * divergence.sum()
                weighted.addcmul_(chance, divergence, value=-1).add_(between)
                chance.add_(weighted, alpha=sign * agreement / 2)
            gradients.add(place.start, x[place], chances, twice, smoothing)
        ctx.save_for_backward(gradients.x, gradients.weight, gradients.bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        """What `forward` computed, times the gradient of what came after."""
        x, *others = (None if part is None else part * gradient[0] for part in ctx.saved_tensors)
        assert x is not None
        return x.view(-1, 2, x.shape[1]).transpose(0, 1), *others, None, None, None, None
