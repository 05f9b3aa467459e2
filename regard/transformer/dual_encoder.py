"""Two networks side by side, of texts and of images, that learn what belongs together (Radford et al. 2021).

texts  ─> text encoder  ─> a vector each ─┐
                                          ├─> cosines · exp(scale): a score for each text and image
images ─> image encoder ─> a vector each ─┘
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from regard.transformer import config
from regard.transformer.batch_layout import Rows
from regard.transformer.network import EncoderOnly, Network, Output
from regard.transformer.packing import AnyMask, TokenIds

Images = Float[Tensor, "images channels height width"]  # there may be more texts than images, or fewer


@dataclass(frozen=True)
class Similarity:
    """What a `DualEncoder` returns: how well each text fits each image."""

    text: Float[Tensor, "texts dim"]
    """The texts' vectors, of length one."""
    images: Float[Tensor, "images dim"]
    """The images' vectors, of length one."""
    by_text: Float[Tensor, "texts images"]
    """The scores of the images for each text: their softmax says which image a text belongs to."""
    by_image: Float[Tensor, "images texts"]
    """The same turned round: their softmax says which text an image belongs to."""


class DualEncoder(Network):
    """An encoder of texts and one of images, trained so that what belongs together lies close: CLIP.

    To classify images without training, describe each label in words, and see which words are nearest:

        labels = network.embed_text(tokens)               # "a photo of a cat", "a photo of a dog", …
        found = network.compare(labels, network.embed_images(images))
        found.by_image.softmax(dim=-1)                    # images × labels
    """

    def __init__(self, design: config.DualEncoder) -> None:
        super().__init__()
        sizes = _size(design.text), _size(design.vision)
        if sizes[0] != sizes[1]:
            raise ValueError(f"texts become vectors of {sizes[0]}, images of {sizes[1]}: give both one projection size")
        self.config = design
        self.head = None
        self.text = EncoderOnly(design.text)
        self.vision = EncoderOnly(design.vision)
        self.scale = nn.Parameter(torch.empty(()))
        """The logarithm of what cosines are multiplied by, which keeps it above zero."""

    def embed_text(
        self, tokens: TokenIds, mask: AnyMask = None, *, rows: Rows | None = None
    ) -> Float[Tensor, "texts dim"]:
        """A vector of length one for each text."""
        return _unit(self.text(tokens, mask, rows=rows))

    def embed_images(self, images: Images) -> Float[Tensor, "images dim"]:
        """A vector of length one for each image."""
        return _unit(self.vision(images))

    def compare(self, text: Float[Tensor, "texts dim"], images: Float[Tensor, "images dim"]) -> Similarity:
        """The scores of vectors of length one: their cosines times exp(scale)."""
        scores = text @ images.t() * self.scale.exp()
        return Similarity(text, images, scores, scores.t())

    def forward(
        self, tokens: TokenIds, images: Images, mask: AnyMask = None, *, rows: Rows | None = None
    ) -> Similarity:
        """Compare all texts with all images. `mask` and `rows` are those of the texts."""
        return self.compare(self.embed_text(tokens, mask, rows=rows), self.embed_images(images))


def _unit(output: Output) -> Float[Tensor, "batch dim"]:
    assert output.logits is not None
    return normalize(output.logits, dim=-1)


def _size(side: config.EncoderOnly) -> int:
    """How large the vectors of one side are."""
    if not isinstance(side.head, config.Features):
        raise ValueError(f"each side of a DualEncoder needs the head Features, found {side.head}")
    return side.model_dim if side.head.projection is None else side.head.projection
