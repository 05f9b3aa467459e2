"""Fused output projection and cross-entropy of a language model, which never stores all logits.

A batch of 4,096 tokens and a vocabulary of 32,000 have half a gigabyte of logits, which torch writes and reads about
ten times in the forward and backward pass. Here the logits of a few hundred tokens are computed at a time, and their
part of the gradient at once, while they are still in the processor's cache, so they are not needed again.

    loss(token) = (1 - ε) · -log p(target) + ε · mean over the vocabulary of -log p

With logits = x·Wᵀ + b, p = softmax(logits) and label smoothing ε, the gradient of the sum with respect to the logits of
a token is p - (1-ε)·[target] - ε/V. The last two terms need no vector of the vocabulary's length: multiplied by W they
are one row of W, and the sum of all rows of W.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.native import bf16
from regard.native.training_ops import cross_entropy_forward_backward
from regard.training.modules.dropout import has_native_kernels

CHUNK_LOGITS = 1 << 21
"""Number of logits that are computed at a time."""
MIN_LOG_PROBABILITY = -80.0
"""Logarithm of about the smallest probability that float32 represents with full precision."""


def linear_cross_entropy(
    x: Float[Tensor, "tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    targets: Int[Tensor, " tokens"],
    label_smoothing: float = 0.0,
    projection: type[VocabularyProjection] | None = None,
) -> Float[Tensor, ""]:
    """Return the summed cross-entropy of hidden states that `weight` and `bias` project to logits.

    The same as `functional.cross_entropy(functional.linear(x, weight, bias), targets, reduction="sum",
    label_smoothing=label_smoothing)`, in less time and memory.
    """
    return FusedLinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, targets, label_smoothing, torch.is_grad_enabled(), projection or VocabularyProjection
    )


@dataclass(frozen=True)
class VocabularyProjection:
    """The output projection, and the three matrix products of the loss with it."""

    weight: Float[Tensor, "vocabulary dim"]
    bias: Float[Tensor, " vocabulary"] | None

    def logits(self, x: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens vocabulary"]:
        """Return the logits of hidden states."""
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def input_gradient(self, gradient: Float[Tensor, "tokens vocabulary"], out: Float[Tensor, "tokens dim"]) -> None:
        """Write the gradient of the hidden states to `out`, given that of the logits."""
        torch.mm(gradient, self.weight, out=out)

    def add_weight_gradient(self, gradient: Tensor, x: Tensor, out: Float[Tensor, "vocabulary dim"]) -> None:
        """Add the gradient of the weight to `out`."""
        out.addmm_(gradient.t(), x)


class Bf16VocabularyProjection(VocabularyProjection):
    """The output projection in bfloat16, with native kernels."""

    @cached_property
    def _packed_weight_t(self) -> bf16.PackedBf16Matrix:
        return bf16.PackedBf16Matrix.pack(self.weight.detach().t())

    @cached_property
    def _packed_weight(self) -> bf16.PackedBf16Matrix:
        return bf16.PackedBf16Matrix.pack(self.weight.detach())

    def logits(self, x: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens vocabulary"]:
        """Return the logits of hidden states."""
        return bf16.matmul(x, self._packed_weight_t, self.bias)

    def input_gradient(self, gradient: Float[Tensor, "tokens vocabulary"], out: Float[Tensor, "tokens dim"]) -> None:
        """Write the gradient of the hidden states to `out`, given that of the logits."""
        bf16.matmul(gradient, self._packed_weight, out=out)

    def add_weight_gradient(self, gradient: Tensor, x: Tensor, out: Float[Tensor, "vocabulary dim"]) -> None:
        """Add the gradient of the weight to `out`."""
        bf16.matmul(gradient.t(), bf16.PackedBf16Matrix.pack(x), out=out, accumulate=True)


class FusedLinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy that computes its gradients in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        grad_enabled: bool,
        projection_class: type[VocabularyProjection],
    ) -> Tensor:
        """Compute the loss, and the gradients of the inputs that require them."""
        needs_grad = tuple(grad_enabled and needed for needed in ctx.needs_input_grad[:3])
        x, projection = x.contiguous(), projection_class(weight, bias)
        gradients = GradientAccumulator(x, projection, needs_grad)
        size = max(1, CHUNK_LOGITS // len(weight))
        total = x.new_zeros(())
        for start in range(0, len(x), size):
            chunk, chunk_targets = x[start : start + size], targets[start : start + size]
            logits = projection.logits(chunk)
            if has_native_kernels(logits):  # the kernel replaces the logits by their gradient
                total += cross_entropy_forward_backward(logits, chunk_targets.contiguous(), label_smoothing)
                gradients.add_logit_gradient(start, chunk, logits)
                continue
            probabilities = logits.softmax(dim=1)
            log_probability = _target_log_probability(probabilities, logits, chunk_targets)
            total -= log_probability.sum() * (1 - label_smoothing)
            if label_smoothing:  # the mean of all logits is the logit of the mean row of the matrix
                mean = chunk @ weight.mean(dim=0) + (0 if bias is None else bias.mean())
                logsumexp = logits.gather(1, chunk_targets[:, None])[:, 0] - log_probability
                total -= (mean - logsumexp).sum() * label_smoothing
            if any(needs_grad):
                gradients.add_probabilities(start, chunk, probabilities, chunk_targets, label_smoothing)
        ctx.save_for_backward(gradients.x, gradients.weight, gradients.bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply the gradients that `forward` computed by the incoming gradient."""
        gradients = (None if saved is None else saved * gradient[0] for saved in ctx.saved_tensors)
        return *gradients, None, None, None, None


def _target_log_probability(
    probabilities: Tensor, logits: Tensor, targets: Int[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """Return log p of the targets; computed from the logits if p underflows."""
    log_probability = probabilities.gather(1, targets[:, None])[:, 0].log()
    tiny = (log_probability < MIN_LOG_PROBABILITY).nonzero()[:, 0]
    if len(tiny):
        log_probability[tiny] = logits[tiny].log_softmax(dim=1).gather(1, targets[tiny, None])[:, 0]
    return log_probability


class GradientAccumulator:
    """The gradients of hidden states, weight and bias, summed chunk by chunk. None where not needed."""

    def __init__(self, x: Tensor, projection: VocabularyProjection, needs_grad: tuple[bool, ...]) -> None:
        self.projection = projection
        self.matrix = weight = projection.weight
        bias = projection.bias
        self.x = torch.empty_like(x) if needs_grad[0] else None
        self.weight = torch.zeros_like(weight) if needs_grad[1] else None
        self.bias = torch.zeros_like(bias) if bias is not None and needs_grad[2] else None

    def add_logit_gradient(self, start: int, x: Tensor, logit_gradient: Tensor) -> None:
        """Add a chunk of hidden states, given the gradient of their logits."""
        if self.x is not None:
            self.projection.input_gradient(logit_gradient, self.x[start : start + len(x)])
        if self.weight is not None:
            self.projection.add_weight_gradient(logit_gradient, x, self.weight)
        if self.bias is not None:
            self.bias.add_(logit_gradient.sum(dim=0))

    def add_probabilities(
        self, start: int, x: Tensor, probabilities: Tensor, targets: Tensor, label_smoothing: float
    ) -> None:
        """Add a chunk of hidden states, given the probabilities of all tokens at each of them."""
        vocab_size, target_weight = len(self.matrix), 1 - label_smoothing
        if self.x is not None:
            chunk = torch.mm(probabilities, self.matrix, out=self.x[start : start + len(x)])
            chunk.sub_(self.matrix[targets], alpha=target_weight)
            if label_smoothing:
                chunk.sub_(self.matrix.sum(dim=0), alpha=label_smoothing / vocab_size)
        if self.weight is not None:
            self.weight.addmm_(probabilities.t(), x)
            self.weight.index_add_(0, targets, x, alpha=-target_weight)
            if label_smoothing:
                self.weight.sub_(x.sum(dim=0), alpha=label_smoothing / vocab_size)
        if self.bias is not None:
            self.bias.add_(probabilities.sum(dim=0))
            self.bias.index_add_(0, targets, x.new_ones(len(targets)), alpha=-target_weight)
            if label_smoothing:
                self.bias.sub_(len(x) * label_smoothing / vocab_size)
