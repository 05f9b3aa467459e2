"""Images as sequences: an image is divided into patches, and each patch is a token (Dosovitskiy et al. 2020).

    image, 2 × 3 patches        its sequence
    ┌───┬───┬───┐
    │ 1 │ 2 │ 3 │       -->     class 1 2 3 4 5 6
    ├───┼───┼───┤
    │ 4 │ 5 │ 6 │
    └───┴───┴───┘

The first vector, the class vector, is learned and the same for all images. After the last block it represents the
complete image.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.transformer import config

Images = Float[Tensor, "batch channels height width"]


@dataclass(frozen=True)
class MaskedImages:
    """Images with masked patches, which the network predicts (masked image modelling)."""

    images: Float[Tensor, "batch channels height width"]
    masked: Bool[Tensor, "batch patches"]
    """True at masked patches, in row-major order."""


class Patches(nn.Module):
    """Patch embedding: a linear layer on each patch, equivalent to a convolution with stride = kernel size."""

    def __init__(self, design: config.Patches, dim: int) -> None:
        super().__init__()
        self.design = design
        (height, width), (patch_height, patch_width) = design.image, design.patch
        self.grid = (height // patch_height, width // patch_width)
        if not self.num_patches:
            raise ValueError(f"an image of {height}×{width} is smaller than one patch of {patch_height}×{patch_width}")
        self.project = nn.Linear(design.channels * patch_height * patch_width, dim, design.bias)
        self.class_vector = nn.Parameter(torch.empty(dim))
        self.mask_vector = nn.Parameter(torch.empty(dim)) if design.mask_vector else None

    @property
    def num_patches(self) -> int:
        """Number of patches of an image."""
        return self.grid[0] * self.grid[1]

    @property
    def sequence_length(self) -> int:
        """Length of the sequence of an image: its patches and the class vector."""
        return 1 + self.num_patches

    def check(self, inputs: Images | MaskedImages) -> int:
        """Check that the images have the size that the network expects, and return the batch size."""
        images = inputs.images if isinstance(inputs, MaskedImages) else inputs
        expected = (self.design.channels, *self.design.image)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(
                f"expected images of batch × {_format_shape(expected)} (channels, height, width), "
                f"found {_format_shape(images.shape)}: resize and crop them to that size"
            )
        if isinstance(inputs, MaskedImages):
            if self.mask_vector is None:
                raise ValueError("this network has no mask vector: pass the images without `masked`")
            if tuple(inputs.masked.shape) != (len(images), self.num_patches):
                expected = (len(images), self.num_patches)
                raise ValueError(
                    f"`masked` must be {_format_shape(expected)} (batch, patches), "
                    f"found {_format_shape(inputs.masked.shape)}"
                )
        return len(images)

    def forward(self, inputs: Images | MaskedImages) -> Float[Tensor, "tokens dim"]:
        """Embed the patches of all images, packed; the class vector of each image comes first."""
        images = inputs.images if isinstance(inputs, MaskedImages) else inputs
        x = self.project(self.patchify(images.to(self.class_vector.dtype)))
        if isinstance(inputs, MaskedImages) and self.mask_vector is not None:
            x = torch.where(inputs.masked[:, :, None], self.mask_vector, x)
        return torch.cat([self.class_vector.expand(len(x), 1, -1), x], dim=1).flatten(0, 1)

    def patchify(self, images: Images) -> Float[Tensor, "batch patches pixels"]:
        """Split images into patches in row-major order; the pixels of a patch are ordered by channel, row, column."""
        height, width = self.design.patch
        windows = images.unfold(2, height, height).unfold(3, width, width)
        return windows.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)

    def unpatchify(self, pixels: Float[Tensor, "batch length pixels"]) -> Images:
        """Join predicted patches to images: the inverse of `patchify`. Position 0, the class vector, is ignored."""
        patches = pixels[:, 1:].reshape(len(pixels), *self.grid, self.design.channels, *self.design.patch)
        return patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
