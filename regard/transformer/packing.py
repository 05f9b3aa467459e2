"""The door of a network: padding is taken out when a batch comes in, and put back when its results leave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.transformer.batch_layout import Rows, rows_of_padded
from regard.transformer.cache import Cache, Memory
from regard.transformer.embedding import Given
from regard.transformer.mask import Everything, Mask, Padding, take_out_padding
from regard.transformer.patches import Images, MaskedImages, Patches

TokenIds = Int[Tensor, "batch length"] | Int[Tensor, " tokens"]
TargetIds = Int[Tensor, "batch target"] | Int[Tensor, " target_tokens"]
AnyMask = Mask | Bool[Tensor, "batch length"] | None
TargetMask = Mask | Bool[Tensor, "batch target"] | None


@dataclass(frozen=True)
class Entered:
    """A batch behind the door: its tokens side by side, its rows, and the way back."""

    tokens: Given
    rows: Rows
    mask: Mask
    places: Int[Tensor, " tokens"] | None
    shape: torch.Size

    def pack(self, beside: Int[Tensor, ...] | None) -> Int[Tensor, " tokens"] | None:
        """Something that stands beside the tokens (segments), taken through the same door."""
        if beside is None:
            return None
        flat = beside.flatten()
        return flat if self.places is None else flat[self.places]

    def leave(self, x: Float[Tensor, "tokens dim"] | None) -> Float[Tensor, "... dim"] | None:
        """Results put back where their tokens stood."""
        if x is None:
            return None
        if self.places is None:
            return x.view(*self.shape, -1)
        return self.leave_in_parts([x])

    def leave_in_parts(self, parts: Iterable[Float[Tensor, "_ dim"]]) -> Float[Tensor, "... dim"]:
        """The same for results that come a few tokens at a time, so that all of them are held only once."""
        assert self.places is not None
        filled, done = None, 0
        for part in parts:
            if filled is None:
                filled = part.new_zeros(self.shape.numel(), part.shape[-1])
            filled.index_copy_(0, self.places[done : done + len(part)], part)
            done += len(part)
            del part  # before the next one is made
        assert filled is not None
        return filled.view(*self.shape, -1)


def enter(tokens: TokenIds, mask: AnyMask, rows: Rows | None, cache: Cache | Memory | None = None) -> Entered:
    """Take the padding out of a batch."""
    starts = cache.lengths if cache is not None and cache.lengths else None
    batch = len(tokens) if tokens.ndim == 2 else rows.batch if rows else 0
    if starts is not None and len(starts) != batch:
        raise ValueError(f"the cache holds {len(starts)} rows, but the batch has {batch}")
    real, rest = take_out_padding(Padding(mask) if isinstance(mask, Tensor) else mask or Everything())
    if tokens.ndim == 1:
        if rows is None or rows.tokens != len(tokens):
            raise ValueError(f"{len(tokens)} packed tokens need `rows=Rows.of(lengths)` whose lengths add up to that")
        if real is not None:
            raise ValueError("packed tokens have no padding: leave the padding mask out")
        packed = Rows.of(rows.lengths, tokens.device, starts or rows.starts)
        rest.check(packed.batch, packed.longest)
        return Entered(tokens, packed, rest, None, tokens.shape)
    rest.check(*tokens.shape)
    if real is not None and real.shape != tokens.shape:
        raise ValueError(f"the mask is {tuple(real.shape)}, the tokens are {tuple(tokens.shape)}: they must be alike")
    if real is None or bool(real.all()):
        full = Rows.of((tokens.shape[1],) * tokens.shape[0], tokens.device, starts)
        return Entered(tokens.flatten(), full, rest, None, tokens.shape)
    if not bool(real.any(dim=1).all()):
        row = int((~real.any(dim=1)).nonzero()[0, 0])
        raise ValueError(f"row {row} is padding from end to end: leave it out")
    ragged, places = rows_of_padded(real, starts)
    order = real.logical_not().int().argsort(dim=1, stable=True)
    return Entered(tokens.flatten()[places], ragged, rest.compact(order), places, tokens.shape)


def enter_images(images: Images | MaskedImages, mask: AnyMask, rows: Rows | None, patches: Patches) -> Entered:
    """A batch of images: each is a row of its class vector and its patches, all of one length."""
    if rows is not None or isinstance(mask, Tensor):
        raise ValueError("images are rows of one length, without padding: leave `rows` and a padding mask out")
    shape = torch.Size((patches.check(images), patches.places))
    full = Rows.of((patches.places,) * shape[0], patches.class_vector.device)
    return Entered(images, full, mask or Everything(), None, shape)
