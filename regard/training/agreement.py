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

from regard.native.training import lose_twice
from regard.training.cross_entropy import SCORES, Gradients, Vocabulary
from regard.training.dropout import compiled

Vectors = Float[Tensor, "tokens dim"]


def agreeing_cross_entropy(
    first: Vectors,
    second: Vectors,
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    targets: Int[Tensor, " tokens"],
    smoothing: float,
    agreement: float,
    kind: type[Vocabulary] = Vocabulary,
) -> Float[Tensor, ""]:
    """The sum of both losses of all tokens, and of their disagreement, when both are scored by `weight` and `bias`."""
    return LoseTwice.apply(first, second, weight, bias, targets, smoothing, agreement, kind)  # type: ignore[no-untyped-call]


class LoseTwice(torch.autograd.Function):
    """The loss, and its gradient in the same pass."""

    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        agreement: float,
        kind: type[Vocabulary],
    ) -> Tensor:
        """The loss. The gradients are computed on the way."""
        wanted = (True, *ctx.needs_input_grad[2:4])
        first, second, vocabulary = first.contiguous(), second.contiguous(), kind(weight, bias)
        gradients = [Gradients(x, vocabulary, wanted) for x in (first, second)]
        gradients[1].weight, gradients[1].bias = gradients[0].weight, gradients[0].bias  # both add to the same
        size = max(1, SCORES // (4 * len(weight)))
        total = first.new_zeros(())
        for start in range(0, len(first), size):
            place = slice(start, start + size)
            aims = targets[place]
            if compiled(first, weight):
                scores = [vocabulary.scores(x[place]) for x in (first, second)]
                total += lose_twice(scores[0], scores[1], aims.contiguous(), smoothing, agreement)
                for x, score, gradient in zip((first, second), scores, gradients, strict=True):
                    gradient.add_scored(start, x[place], score)
                continue
            logs = [functional.linear(x[place], weight, bias).log_softmax(dim=1) for x in (first, second)]
            chances = [log.exp() for log in logs]
            for log in logs:
                right, mean = log.gather(1, aims[:, None]), log.mean(dim=1)
                total -= (1 - smoothing) * right.sum() + smoothing * mean.sum()
            apart, between = logs[0].sub_(logs[1]), chances[0] - chances[1]
            for x, chance, sign, gradient in zip((first, second), chances, (1, -1), gradients, strict=True):
                weighted = chance * apart
                divergence = weighted.sum(dim=1, keepdim=True)
                total += sign * agreement / 2 * divergence.sum()
                weighted.addcmul_(chance, divergence, value=-1).add_(between)
                chance.add_(weighted, alpha=sign * agreement / 2)
                gradient.add(start, x[place], chance, aims, smoothing)
        ctx.save_for_backward(gradients[0].x, gradients[1].x, gradients[0].weight, gradients[0].bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        """What `forward` computed, times the gradient of what came after."""
        parts = (None if part is None else part * gradient[0] for part in ctx.saved_tensors)
        return *parts, None, None, None, None
