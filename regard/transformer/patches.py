"""Images as rows of vectors: an image is cut into patches, and a patch is a word (Dosovitskiy et al. 2020).

    image, 2 × 3 patches        its row
    ┌───┬───┬───┐
    │ 1 │ 2 │ 3 │       -->     class 1 2 3 4 5 6
    ├───┼───┼───┤
    │ 4 │ 5 │ 6 │
    └───┴───┴───┘

The vector that stands first belongs to no patch: it is the same for all images, and gathers what the whole shows.
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
    """Images of which some patches are hidden from the network, for it to guess (masked image modelling)."""

    images: Float[Tensor, "batch channels height width"]
    masked: Bool[Tensor, "batch patches"]
    """True at the patches that are hidden, line by line."""


class Patches(nn.Module):
    """One layer that makes a vector of each patch: a convolution whose windows touch and do not overlap."""

    def __init__(self, design: config.Patches, dim: int) -> None:
        super().__init__()
        self.design = design
        (height, width), (patch_height, patch_width) = design.image, design.patch
        self.grid = (height // patch_height, width // patch_width)
        if not self.patches:
            raise ValueError(f"images of {height}×{width} hold no patch of {patch_height}×{patch_width}")
        self.project = nn.Linear(design.channels * patch_height * patch_width, dim, design.bias)
        self.class_vector = nn.Parameter(torch.empty(dim))
        self.mask_vector = nn.Parameter(torch.empty(dim)) if design.mask_vector else None

    @property
    def patches(self) -> int:
        """How many patches an image has."""
        return self.grid[0] * self.grid[1]

    @property
    def places(self) -> int:
        """How long the row of an image is: its patches and the class vector."""
        return 1 + self.patches

    def check(self, given: Images | MaskedImages) -> int:
        """How many images there are, if they are of the size that the network reads."""
        images = given.images if isinstance(given, MaskedImages) else given
        expected = (self.design.channels, *self.design.image)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(
                f"expected images of batch × {_times(expected)} (channels, height, width), found {_times(images.shape)}"
                ": scale and crop them to that size"
            )
        if isinstance(given, MaskedImages):
            if self.mask_vector is None:
                raise ValueError("this network has no vector for hidden patches: give it the images alone")
            if tuple(given.masked.shape) != (len(images), self.patches):
                expected = (len(images), self.patches)
                raise ValueError(
                    f"`masked` must be {_times(expected)} (batch, patches), found {_times(given.masked.shape)}"
                )
        return len(images)

    def forward(self, given: Images | MaskedImages) -> Float[Tensor, "tokens dim"]:
        """The vectors of all images side by side, each image's class vector first."""
        images = given.images if isinstance(given, MaskedImages) else given
        x = self.project(self.cut(images.to(self.class_vector.dtype)))
        if isinstance(given, MaskedImages) and self.mask_vector is not None:
            x = torch.where(given.masked[:, :, None], self.mask_vector, x)
        return torch.cat([self.class_vector.expand(len(x), 1, -1), x], dim=1).flatten(0, 1)

    def cut(self, images: Images) -> Float[Tensor, "batch patches pixels"]:
        """The pixels of each patch, line by line, channel after channel."""
        height, width = self.design.patch
        windows = images.unfold(2, height, height).unfold(3, width, width)
        return windows.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)

    def picture(self, pixels: Float[Tensor, "batch places pixels"]) -> Images:
        """The inverse of `cut` for what a head said at each place: the images that they make together."""
        patches = pixels[:, 1:].reshape(len(pixels), *self.grid, self.design.channels, *self.design.patch)
        return patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
