"""Contrastive learning: of two texts that belong together, each finds the other in the batch.

        text 1b   text 2b   text 3b
text 1a   x                            Each row and each column is a classification:
text 2a             x                  the right answer is on the diagonal, all other texts of the batch are
text 3a                       x        negatives (van den Oord et al. 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import Batch, PackedColumn
from regard.training.objectives.objective import Loss
from regard.transformer.config import Pooling
from regard.transformer.text_embedder import TextEmbedder, TextEmbedding, UnitLength

SCALE = 20.0
"""Factor on the cosines; sentence-transformers uses the same."""


@dataclass(frozen=True, kw_only=True)
class Contrastive:
    """Columns `tokens` and `pair`: two texts that belong together. The vectors are pooled hidden states of length one.

    The loss is symmetric: the mean of finding the second text for the first, and the first for the second.
    """

    pooling: Pooling = Pooling.MEAN
    """How hidden states are pooled."""
    scale: float = SCALE
    """Factor on the cosines before the softmax: the inverse of the temperature."""

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the loss, summed over the pairs."""
        encoder = network.without_head()
        embedder = TextEmbedder(self.embedding)
        first, second = (embed_texts(encoder, embedder, batch[name]) for name in ("tokens", "pair"))
        return in_batch_loss(first @ second.t() * self.scale, network.training)

    @property
    def embedding(self) -> TextEmbedding:
        """How the trained network makes vectors: what its folder says."""
        return TextEmbedding(poolings=(self.pooling,), layers=(UnitLength(),))


def embed_texts(encoder: nn.Module, embedder: TextEmbedder, texts: PackedColumn) -> Float[Tensor, "texts dim"]:
    """Return the vector of each text of a column."""
    return embedder(encoder(texts.values, layout=texts.layout).hidden, texts.layout)


def in_batch_loss(logits: Float[Tensor, "first second"], training: bool) -> Loss:
    """Return the symmetric loss of a batch, summed over its pairs: the right answers are on the diagonal."""
    labels = torch.arange(len(logits), device=logits.device)
    forward, backward = (nn.functional.cross_entropy(each, labels, reduction="sum") for each in (logits, logits.t()))
    correct = {} if training else {"accuracy": int((logits.argmax(dim=1) == labels).sum())}
    return Loss((forward + backward) / 2, len(labels), correct)
