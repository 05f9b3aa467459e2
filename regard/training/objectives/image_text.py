"""Objectives with images: their labels, or the captions that belong to them (CLIP, Radford et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batches import Batch
from regard.data.image_processor import ImageProcessor
from regard.training.objectives.contrastive import in_batch_loss
from regard.training.objectives.objective import CrossEntropyObjective, LabeledBatch, Loss

MAX_SCALE = math.log(100)
"""The factor on the cosines is at most 100, as in the paper: a larger one makes training unstable."""


def batch_images(batch: Batch, processor: ImageProcessor) -> Float[Tensor, "images channels height width"]:
    """Return the pixel values of the images in the column `pixels`."""
    pixels = batch["pixels"].values
    values = processor.normalize(pixels.reshape(-1, *processor.output_shape).to(torch.uint8).cpu().numpy())
    return torch.from_numpy(values).to(pixels.device)


@dataclass(frozen=True, kw_only=True)
class ImageClassification(CrossEntropyObjective):
    """Columns `pixels` and `label`: predict the label of an image."""

    has_perplexity = False
    processor: ImageProcessor
    """How pixels are normalised."""

    def label_batch(self, batch: Batch) -> LabeledBatch:
        """Return the label of each image."""
        return LabeledBatch(self._forward, batch, batch["label"].values)

    def _forward(self, network: Any, batch: Batch) -> Any:
        return network(batch_images(batch, self.processor))


@dataclass(frozen=True, kw_only=True)
class ImageTextMatching:
    """Columns `pixels` and `tokens`: find the caption of each image in the batch, and the image of each caption."""

    processor: ImageProcessor
    """How pixels are normalised."""

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the symmetric loss, summed over the images."""
        if network.training:
            with torch.no_grad():
                network.scale.clamp_(max=MAX_SCALE)
        tokens = batch["tokens"]
        similarity = network(tokens.values, batch_images(batch, self.processor), layout=tokens.layout)
        return in_batch_loss(similarity.logits_per_image, network.training)
