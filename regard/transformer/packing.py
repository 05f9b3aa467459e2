"""Packing and unpacking: padding is removed from the input of a network and restored in its output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.transformer.batch_layout import BatchLayout, layout_from_mask
from regard.transformer.cache import Cache, Memory
from regard.transformer.embedding import EmbeddingInput
from regard.transformer.mask import Everything, Mask, Padding, split_padding
from regard.transformer.patches import Images, MaskedImages, Patches

TokenIds = Int[Tensor, "batch length"] | Int[Tensor, " tokens"]
TargetIds = Int[Tensor, "batch target"] | Int[Tensor, " target_tokens"]
AnyMask = Mask | Bool[Tensor, "batch length"] | None
TargetMask = Mask | Bool[Tensor, "batch target"] | None


@dataclass(frozen=True)
class PackedBatch:
    """A batch without padding, and what is needed to restore the padding."""

    tokens: EmbeddingInput
    """Packed token ids, or images."""
    layout: BatchLayout
    """Layout of the sequences."""
    mask: Mask
    """The attention mask without padding."""
    indices: Int[Tensor, " tokens"] | None
    """Indices of the real tokens in the flattened input; None if there was no padding."""
    padded_shape: torch.Size
    """Shape of the input."""

    def pack(self, values: Int[Tensor, ...] | None) -> Int[Tensor, " tokens"] | None:
        """Pack other values of the same shape as the tokens, such as segment ids."""
        if values is None:
            return None
        flat = values.flatten()
        return flat if self.indices is None else flat[self.indices]

    def unpack(self, x: Float[Tensor, "tokens dim"] | None) -> Float[Tensor, "... dim"] | None:
        """Restore the padding: real tokens get their results, padding gets zeros."""
        if x is None:
            return None
        if self.indices is None:
            return x.view(*self.padded_shape, -1)
        return self.unpack_chunks([x])

    def unpack_chunks(self, chunks: Iterable[Float[Tensor, "_ dim"]]) -> Float[Tensor, "... dim"]:
        """Unpack results that are computed in chunks of tokens, so that the complete result is in memory only once."""
        assert self.indices is not None
        padded, done = None, 0
        for chunk in chunks:
            if padded is None:
                padded = chunk.new_zeros(self.padded_shape.numel(), chunk.shape[-1])
            padded.index_copy_(0, self.indices[done : done + len(chunk)], chunk)
            done += len(chunk)
            del chunk  # free it before the next chunk is computed
        assert padded is not None
        return padded.view(*self.padded_shape, -1)


def pack(
    tokens: TokenIds, mask: AnyMask, layout: BatchLayout | None, cache: Cache | Memory | None = None
) -> PackedBatch:
    """Remove the padding of a batch, or check a batch that is already packed."""
    check_tensor(tokens)
    starts = cache.lengths if cache is not None and cache.lengths else None
    batch_size = len(tokens) if tokens.ndim == 2 else layout.batch_size if layout else 0
    if starts is not None and len(starts) != batch_size:
        raise ValueError(f"the KV cache holds {len(starts)} sequences, but the batch has {batch_size}")
    real, attention_mask = split_padding(Padding(mask) if isinstance(mask, Tensor) else mask or Everything())
    if tokens.ndim == 1:
        if layout is None or layout.num_tokens != len(tokens):
            raise ValueError(
                f"{len(tokens)} packed tokens need `layout=BatchLayout.of(lengths)` "
                f"with lengths that sum to {len(tokens)}"
            )
        if real is not None:
            raise ValueError("packed tokens have no padding: do not pass a padding mask")
        keys, starts = layout.sequence_keys, starts or layout.start_positions
        layout = BatchLayout.of(layout.lengths, tokens.device, starts).with_sequence_keys(keys)
        attention_mask.check(layout.batch_size, layout.longest)
        return PackedBatch(tokens, layout, attention_mask, None, tokens.shape)
    attention_mask.check(*tokens.shape)
    if real is not None and real.shape != tokens.shape:
        raise ValueError(
            f"the mask has shape {tuple(real.shape)}, the tokens have shape {tuple(tokens.shape)}: they must be equal"
        )
    if real is None or bool(real.all()):
        layout = BatchLayout.of((tokens.shape[1],) * tokens.shape[0], tokens.device, starts)
        return PackedBatch(tokens.flatten(), layout, attention_mask, None, tokens.shape)
    if not bool(real.any(dim=1).all()):
        row = int((~real.any(dim=1)).nonzero()[0, 0])
        raise ValueError(f"sequence {row} is all padding: remove it from the batch")
    layout, indices = layout_from_mask(real, starts)
    order = real.logical_not().int().argsort(dim=1, stable=True)
    return PackedBatch(tokens.flatten()[indices], layout, attention_mask.compact(order), indices, tokens.shape)


def check_tensor(tokens: object) -> None:
    """Raise a ValueError for token ids that are a list, which torch would not name."""
    if not isinstance(tokens, Tensor):
        raise ValueError(f"expected a tensor of token ids, found {type(tokens).__name__}: pass torch.tensor(ids)")


def pack_images(
    images: Images | MaskedImages, mask: AnyMask, layout: BatchLayout | None, patches: Patches
) -> PackedBatch:
    """Pack a batch of images: each is a sequence of its class vector and its patches, all of the same length."""
    if layout is not None or isinstance(mask, Tensor):
        raise ValueError("images all have the same length and no padding: do not pass `layout` or a padding mask")
    shape = torch.Size((patches.check(images), patches.sequence_length))
    layout = BatchLayout.of((patches.sequence_length,) * shape[0], patches.class_vector.device)
    return PackedBatch(images, layout, mask or Everything(), None, shape)
