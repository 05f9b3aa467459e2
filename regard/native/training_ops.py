"""The compiled functions of training, with their gradients. Tensors are float32 on the CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.native.ctypes_structs import Chance, Lengths, Training
from regard.native.library import library
from regard.native.ops import ACTIVATIONS
from regard.transformer.config import Activation

LEVELS = 1 << 16
LANES = 8
"""Sizes of heads are multiples of this."""


def chance(dropped: int) -> Chance:
    """What dropout of this many of 65,536 values is drawn from. The seed is drawn from torch's own generator, so
    `torch.manual_seed` fixes everything."""
    if not dropped:
        return Chance(0, 0, 0, 1.0)
    seed = int(torch.randint(1 << 62, ()))
    scale = LEVELS / (LEVELS - dropped) if dropped < LEVELS else 0.0
    return Chance(seed & 0xFFFFFFFF, seed >> 32, min(dropped, LEVELS - 1), scale)


def drop(x: Float[Tensor, "*any"], from_chance: Chance) -> Float[Tensor, "*any"]:
    """Some of the values, scaled; the others 0."""
    return Drop.apply(x, from_chance)  # type: ignore[no-untyped-call]


class Drop(torch.autograd.Function):
    """Dropout. The gradient draws the same again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, from_chance: Chance) -> Tensor:
        """Some of the values."""
        ctx.chance = from_chance
        return _drop(x, from_chance)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        """The same values of the gradient."""
        return _drop(gradient[0], ctx.chance), None


def _drop(x: Tensor, from_chance: Chance) -> Tensor:
    x = x.contiguous()
    found = torch.empty_like(x)
    library().drop(x.numel(), x.data_ptr(), ctypes.addressof(from_chance), found.data_ptr())
    return found


def add_dropped(
    x: Float[Tensor, "tokens model"], said: Float[Tensor, "tokens model"], from_chance: Chance
) -> Float[Tensor, "tokens model"]:
    """x + dropout(said)."""
    return AddDropped.apply(x, said, from_chance)  # type: ignore[no-untyped-call]


class AddDropped(torch.autograd.Function):
    """The sum, in one pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, said: Tensor, from_chance: Chance) -> Tensor:
        """x + dropout(said)."""
        ctx.chance = from_chance
        x, said = x.contiguous(), said.contiguous()
        found = torch.empty_like(x)
        at = (x.data_ptr(), said.data_ptr(), ctypes.addressof(from_chance), found.data_ptr())
        library().add_dropped(*x.shape, *at)
        return found

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """The gradient as it is, and some of its values."""
        whole = gradient[0].contiguous()
        said = torch.empty_like(whole)
        library().add_dropped_back(*whole.shape, whole.data_ptr(), ctypes.addressof(ctx.chance), said.data_ptr())
        return whole, said, None


def bend(x: Float[Tensor, "*any"], activation: Activation, from_chance: Chance) -> Float[Tensor, "*any"]:
    """dropout(activation(x)), in one pass."""
    return Bend.apply(x, ACTIVATIONS[activation], from_chance)  # type: ignore[no-untyped-call]


class Bend(torch.autograd.Function):
    """An activation and the dropout behind it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: int, from_chance: Chance) -> Tensor:
        """What comes out."""
        x = x.contiguous()
        ctx.save_for_backward(x)
        ctx.activation, ctx.chance = activation, from_chance
        found = torch.empty_like(x)
        library().bend(x.numel(), x.data_ptr(), activation, ctypes.addressof(from_chance), found.data_ptr())
        return found

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of what went in."""
        (x,) = ctx.saved_tensors
        whole = gradient[0].contiguous()
        found = torch.empty_like(x)
        at = (ctypes.addressof(ctx.chance), whole.data_ptr(), found.data_ptr())
        library().bend_back(x.numel(), x.data_ptr(), ctx.activation, *at)
        return found, None, None


Heads = Float[Tensor, "tokens heads dim"]
KeyHeads = Float[Tensor, "key_tokens heads dim"]


def attend(
    query: Heads,
    key: KeyHeads,
    value: KeyHeads,
    queries: Lengths,
    keys: Lengths,
    scale: float,
    causal: bool,
    from_chance: Chance,
) -> Float[Tensor, "tokens all"]:
    """softmax(Q·Kᵀ·scale)·V, with dropout of the weights, for rows that stand side by side."""
    asked = _Asked(queries, keys, scale, causal, from_chance)
    return Attend.apply(query, key, value, asked)  # type: ignore[no-untyped-call]


class _Asked:
    """What is asked beside the tensors."""

    def __init__(self, queries: Lengths, keys: Lengths, scale: float, causal: bool, from_chance: Chance) -> None:
        self.queries, self.keys, self.scale, self.causal, self.chance = queries, keys, scale, causal, from_chance

    def structure(self, query: Tensor, key: Tensor, value: Tensor, answer: Tensor) -> Training:
        """The same as C has it."""
        return Training(
            self.queries.count, query.shape[1], query.shape[2], self.scale, self.causal,
            query.data_ptr(), key.data_ptr(), value.data_ptr(), query.stride(0), key.stride(0), value.stride(0),
            self.queries.at, self.queries.begin_at, self.keys.at, self.keys.begin_at, self.chance,
            self.keys.longest, answer.data_ptr(),
        )  # fmt: skip


class Attend(torch.autograd.Function):
    """Attention. The weights are not kept: they are computed again on the way back."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, asked: _Asked) -> Tensor:
        """The answers."""
        query, key, value = (_head_by_head(x) for x in (query, key, value))
        answer = query.new_empty(len(query), query.shape[1] * query.shape[2])
        structure = asked.structure(query, key, value, answer)
        library().attend_in_training(ctypes.addressof(structure))
        ctx.save_for_backward(query, key, value)
        ctx.asked = asked
        return answer

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """The gradients of queries, keys and values."""
        query, key, value = ctx.saved_tensors
        whole = gradient[0].contiguous()
        found = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)]
        structure = ctx.asked.structure(query, key, value, whole)
        structure.query_gradient, structure.key_gradient, structure.value_gradient = (x.data_ptr() for x in found)
        library().attend_back(ctypes.addressof(structure))
        return found[0], found[1], found[2], None


def _head_by_head(x: Tensor) -> Tensor:
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


def lose(
    scores: Float[Tensor, "tokens vocabulary"], targets: Int[Tensor, " tokens"], smoothing: float
) -> Float[Tensor, ""]:
    """The sum of the cross-entropies. The scores become its gradient."""
    losses = torch.empty(len(scores), dtype=torch.float64)
    library().lose(*scores.shape, scores.data_ptr(), targets.data_ptr(), smoothing, losses.data_ptr())
    return losses.sum()


def lose_twice(
    scores: Float[Tensor, "tokens 2 vocabulary"], targets: Int[Tensor, " tokens"], smoothing: float, agreement: float
) -> Float[Tensor, ""]:
    """The sum of both cross-entropies and of the disagreement (`training/agreement.py`). Scores become gradients."""
    losses = torch.empty(len(scores), dtype=torch.float64)
    at = (scores.data_ptr(), targets.data_ptr())
    library().lose_twice(len(scores), scores.shape[2], *at, smoothing, agreement, losses.data_ptr())
    return losses.sum()
