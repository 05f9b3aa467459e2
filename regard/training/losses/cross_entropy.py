"""The loss of a language model, without ever holding all its scores.

A batch of 4,096 tokens and a vocabulary of 32,000 have half a gigabyte of scores, which torch writes and reads some ten
times on the way to the loss and back. Here a few hundred tokens are scored at a time, while the scores are still in the
processor's cache, and their part of the gradient is computed at once, so they are never needed again.

    loss(token) = (1 - smoothing) · -log p(target) + smoothing · mean over the vocabulary of -log p

With logits = x·Wᵀ + b, p = softmax(logits) and ε for the smoothing, the gradient of the sum by a token's logits is
p - (1-ε)·[target] - ε/V. The last two terms need no row of the vocabulary's length: they are one row of W, and the sum
of all rows of W.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.native import bf16
from regard.native.training_ops import lose
from regard.training.modules.dropout import compiled

SCORES = 1 << 21
"""How many scores are held at a time."""
SMALL = -80.0
"""The logarithm of a probability that float32 can only just write with all its digits."""


def cross_entropy(
    x: Float[Tensor, "tokens dim"],
    weight: Float[Tensor, "vocabulary dim"],
    bias: Float[Tensor, " vocabulary"] | None,
    targets: Int[Tensor, " tokens"],
    smoothing: float = 0.0,
    kind: type[Vocabulary] | None = None,
) -> Float[Tensor, ""]:
    """The sum of the losses of all tokens, when their vectors are scored by `weight` and `bias`.

    The same as `functional.cross_entropy(functional.linear(x, weight, bias), targets, reduction="sum",
    label_smoothing=smoothing)`, in less time and memory.
    """
    wanted = torch.is_grad_enabled()
    return ScoreAndLose.apply(x, weight, bias, targets, smoothing, wanted, kind or Vocabulary)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Vocabulary:
    """The matrix of a vocabulary, and the three products that a loss makes with it."""

    weight: Float[Tensor, "vocabulary dim"]
    bias: Float[Tensor, " vocabulary"] | None

    def scores(self, x: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens vocabulary"]:
        """What the vectors score."""
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def back(self, gradient: Float[Tensor, "tokens vocabulary"], to: Float[Tensor, "tokens dim"]) -> None:
        """The gradient of the vectors, from that of their scores."""
        torch.mm(gradient, self.weight, out=to)

    def add(self, gradient: Tensor, x: Tensor, to: Float[Tensor, "vocabulary dim"]) -> None:
        """Add what the matrix gets of it."""
        to.addmm_(gradient.t(), x)


class HalfVocabulary(Vocabulary):
    """The same in bfloat16, by the compiled parts."""

    @cached_property
    def _there(self) -> bf16.Panels:
        return bf16.Panels.of(self.weight.detach().t())

    @cached_property
    def _back(self) -> bf16.Panels:
        return bf16.Panels.of(self.weight.detach())

    def scores(self, x: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens vocabulary"]:
        """What the vectors score."""
        return bf16.multiply(x, self._there, self.bias)

    def back(self, gradient: Float[Tensor, "tokens vocabulary"], to: Float[Tensor, "tokens dim"]) -> None:
        """The gradient of the vectors, from that of their scores."""
        bf16.multiply(gradient, self._back, to=to)

    def add(self, gradient: Tensor, x: Tensor, to: Float[Tensor, "vocabulary dim"]) -> None:
        """Add what the matrix gets of it."""
        bf16.multiply(gradient.t(), bf16.Panels.of(x), to=to, add=True)


class ScoreAndLose(torch.autograd.Function):
    """The loss, and its gradient in the same pass."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        gradient: bool,
        kind: type[Vocabulary],
    ) -> Tensor:
        """The loss. The gradients are computed on the way, if they will be asked for."""
        wanted = tuple(gradient and needed for needed in ctx.needs_input_grad[:3])
        x, vocabulary = x.contiguous(), kind(weight, bias)
        gradients = Gradients(x, vocabulary, wanted)
        size = max(1, SCORES // len(weight))
        total = x.new_zeros(())
        for start in range(0, len(x), size):
            part, aims = x[start : start + size], targets[start : start + size]
            scores = vocabulary.scores(part)
            if compiled(scores):
                total += lose(scores, aims.contiguous(), smoothing)
                gradients.add_scored(start, part, scores)
                continue
            chances = scores.softmax(dim=1)
            right = _logarithm(chances, scores, aims)
            total -= right.sum() * (1 - smoothing)
            if smoothing:  # the mean of all scores is the score by the mean of all rows of the matrix
                mean = part @ weight.mean(dim=0) + (0 if bias is None else bias.mean())
                whole = scores.gather(1, aims[:, None])[:, 0] - right
                total -= (mean - whole).sum() * smoothing
            if any(wanted):
                gradients.add(start, part, chances, aims, smoothing)
        ctx.save_for_backward(gradients.x, gradients.weight, gradients.bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        """What `forward` computed, times the gradient of what came after."""
        parts = (None if part is None else part * gradient[0] for part in ctx.saved_tensors)
        return *parts, None, None, None, None


def _logarithm(chances: Tensor, scores: Tensor, aims: Int[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
    """log p of the targets; from the scores where p is too small to be written as a number."""
    right = chances.gather(1, aims[:, None])[:, 0].log()
    lost = (right < SMALL).nonzero()[:, 0]
    if len(lost):
        right[lost] = scores[lost].log_softmax(dim=1).gather(1, aims[lost, None])[:, 0]
    return right


class Gradients:
    """The gradients of a batch, gathered part by part."""

    def __init__(self, x: Tensor, vocabulary: Vocabulary, wanted: tuple[bool, ...]) -> None:
        self.vocabulary = vocabulary
        self.matrix = weight = vocabulary.weight
        bias = vocabulary.bias
        self.x = torch.empty_like(x) if wanted[0] else None
        self.weight = torch.zeros_like(weight) if wanted[1] else None
        self.bias = torch.zeros_like(bias) if bias is not None and wanted[2] else None

    def add_scored(self, start: int, x: Tensor, scores: Tensor) -> None:
        """Add a part: its vectors, and the gradient of its scores."""
        if self.x is not None:
            self.vocabulary.back(scores, self.x[start : start + len(x)])
        if self.weight is not None:
            self.vocabulary.add(scores, x, self.weight)
        if self.bias is not None:
            self.bias.add_(scores.sum(dim=0))

    def add(self, start: int, x: Tensor, chances: Tensor, aims: Tensor, smoothing: float) -> None:
        """Add a part: its vectors, and how likely each token of the vocabulary is behind each of them."""
        vocabulary, right = len(self.matrix), 1 - smoothing
        if self.x is not None:
            part = torch.mm(chances, self.matrix, out=self.x[start : start + len(x)])
            part.sub_(self.matrix[aims], alpha=right)
            if smoothing:
                part.sub_(self.matrix.sum(dim=0), alpha=smoothing / vocabulary)
        if self.weight is not None:
            self.weight.addmm_(chances.t(), x)
            self.weight.index_add_(0, aims, x, alpha=-right)
            if smoothing:
                self.weight.sub_(x.sum(dim=0), alpha=smoothing / vocabulary)
        if self.bias is not None:
            self.bias.add_(chances.sum(dim=0))
            self.bias.index_add_(0, aims, x.new_ones(len(aims)), alpha=-right)
            if smoothing:
                self.bias.sub_(len(x) * smoothing / vocabulary)
