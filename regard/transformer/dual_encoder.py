"""A text encoder and an image encoder with a common embedding space (CLIP, Radford et al. 2021).

texts  ─> text encoder  ─> a vector each ─┐
                                          ├─> cosine · exp(scale): a logit for each pair of text and image
images ─> image encoder ─> a vector each ─┘
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from regard.transformer import config
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.network import EncoderOnly
from regard.transformer.network_base import Network, Output
from regard.transformer.packing import AnyMask, TokenIds

Images = Float[Tensor, "images channels height width"]  # the number of images may differ from the number of texts


@dataclass(frozen=True)
class Similarity:
    """Output of a `DualEncoder`: the similarity of each text to each image."""

    text_embeddings: Float[Tensor, "texts dim"]
    """L2-normalised text embeddings."""
    image_embeddings: Float[Tensor, "images dim"]
    """L2-normalised image embeddings."""
    logits_per_text: Float[Tensor, "texts images"]
    """Logits of the images for each text; the softmax gives the probability that an image matches the text."""
    logits_per_image: Float[Tensor, "images texts"]
    """The transpose: logits of the texts for each image."""


class DualEncoder(Network):
    """A text encoder and an image encoder, trained so that matching texts and images have similar embeddings: CLIP.

    Zero-shot classification of images: describe each label in words, and compare the descriptions with the images.

        labels = network.embed_text(tokens)               # "a photo of a cat", "a photo of a dog", …
        similarity = network.compare(labels, network.embed_images(images))
        similarity.logits_per_image.softmax(dim=-1)       # images × labels
    """

    def __init__(self, design: config.DualEncoder) -> None:
        super().__init__()
        sizes = _feature_size(design.text), _feature_size(design.vision)
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"text features have size {sizes[0]}, image features {sizes[1]}: use the same projection size"
            )
        self.config = design
        self.head = None
        self.text = EncoderOnly(design.text)
        self.vision = EncoderOnly(design.vision)
        self.scale = nn.Parameter(torch.empty(()))
        """Logarithm of the factor on the cosines, so that the factor stays positive."""

    def embed_text(
        self, tokens: TokenIds, mask: AnyMask = None, *, layout: BatchLayout | None = None
    ) -> Float[Tensor, "texts dim"]:
        """Return an L2-normalised embedding of each text."""
        return _normalize(self.text(tokens, mask, layout=layout))

    def embed_images(self, images: Images) -> Float[Tensor, "images dim"]:
        """Return an L2-normalised embedding of each image."""
        return _normalize(self.vision(images))

    def compare(self, text: Float[Tensor, "texts dim"], images: Float[Tensor, "images dim"]) -> Similarity:
        """Return the logits of L2-normalised embeddings: their cosines times exp(scale)."""
        logits = text @ images.t() * self.scale.exp()
        return Similarity(text, images, logits, logits.t())

    def forward(
        self, tokens: TokenIds, images: Images, mask: AnyMask = None, *, layout: BatchLayout | None = None
    ) -> Similarity:
        """Compare all texts with all images. `mask` and `layout` are those of the texts."""
        return self.compare(self.embed_text(tokens, mask, layout=layout), self.embed_images(images))


def _normalize(output: Output) -> Float[Tensor, "batch dim"]:
    assert output.pooled is not None
    return normalize(output.pooled, dim=-1)


def _feature_size(side: config.EncoderOnly) -> int:
    """Return the size of the embeddings of one encoder."""
    if not isinstance(side.head, config.Features):
        raise ValueError(f"each encoder of a DualEncoder needs the head Features, found {side.head}")
    return side.model_dim if side.head.projection is None else side.head.projection
