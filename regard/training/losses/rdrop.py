"""Fused output projection and R-Drop loss (Liang et al. 2021), which never stores all logits.

With p and q the distributions of the two forward passes at a position, d = log p − log q, and α = `rdrop_alpha`,

    loss = loss(p) + loss(q) + α · ½ · (KL(p ‖ q) + KL(q ‖ p)),    KL(p ‖ q) = Σ p·d,    KL(q ‖ p) = −Σ q·d

and the gradient of the last term with respect to the logits of p is α/2 · (p·(d − KL(p ‖ q)) + p − q); for q, p and q
are exchanged. The rest is as in `cross_entropy.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.native.training_ops import rdrop_forward_backward
from regard.training.losses.cross_entropy import CHUNK_LOGITS, GradientAccumulator, VocabularyProjection
from regard.training.modules.dropout import has_native_kernels

PairedHidden = Float[Tensor, "2 tokens dim"]


def rdrop_cross_entropy(
    hidden_pair: PairedHidden,
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    targets: Int[Tensor, " tokens"],
    label_smoothing: float,
    rdrop_alpha: float,
    projection: type[VocabularyProjection] = VocabularyProjection,
) -> Float[Tensor, ""]:
    """Return the sum over all tokens of both cross-entropies and of the weighted divergence between the two passes."""
    return FusedRDropCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_pair, weight, bias, targets, label_smoothing, rdrop_alpha, projection
    )


class FusedRDropCrossEntropy(torch.autograd.Function):
    """R-Drop loss that computes its gradients in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_pair: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        rdrop_alpha: float,
        projection_class: type[VocabularyProjection],
    ) -> Tensor:
        """Compute the loss and its gradients.

        The two hidden states of a token are adjacent in `x`, so that each chunk uses the weight once for both passes.
        """
        needs_grad = (True, *ctx.needs_input_grad[1:3])
        x, projection = hidden_pair.transpose(0, 1).flatten(0, 1), projection_class(weight, bias)
        gradients = GradientAccumulator(x, projection, needs_grad)
        size = max(1, CHUNK_LOGITS // (2 * len(weight)))
        total = x.new_zeros(())
        for start in range(0, len(targets), size):
            chunk = slice(2 * start, 2 * (start + size))
            chunk_targets = targets[start : start + size]
            if has_native_kernels(x, weight):  # the kernel replaces the logits by their gradient
                logits = projection.logits(x[chunk])
                total += rdrop_forward_backward(
                    logits.view(-1, 2, len(weight)), chunk_targets.contiguous(), label_smoothing, rdrop_alpha
                )
                gradients.add_logit_gradient(chunk.start, x[chunk], logits)
                continue
            log_probabilities = functional.linear(x[chunk], weight, bias).log_softmax(dim=1)
            probabilities, pair_targets = log_probabilities.exp(), chunk_targets.repeat_interleave(2)
            target_term = (1 - label_smoothing) * log_probabilities.gather(1, pair_targets[:, None]).sum()
            total -= target_term + label_smoothing * log_probabilities.mean(dim=1).sum()
            log_ratio, difference = (values[0::2] - values[1::2] for values in (log_probabilities, probabilities))
            for probability, sign in ((probabilities[0::2], 1), (probabilities[1::2], -1)):
                weighted = probability * log_ratio
                kl = weighted.sum(dim=1, keepdim=True)
                total += sign * rdrop_alpha / 2 * kl.sum()
                weighted.addcmul_(probability, kl, value=-1).add_(difference)
                probability.add_(weighted, alpha=sign * rdrop_alpha / 2)
            gradients.add_probabilities(chunk.start, x[chunk], probabilities, pair_targets, label_smoothing)
        ctx.save_for_backward(gradients.x, gradients.weight, gradients.bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply the gradients that `forward` computed by the incoming gradient."""
        x, weight, bias = (None if saved is None else saved * gradient[0] for saved in ctx.saved_tensors)
        assert x is not None
        return x.view(-1, 2, x.shape[1]).transpose(0, 1), weight, bias, None, None, None, None
