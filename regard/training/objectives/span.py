"""Extractive question answering: predict the first and last token of the answer (Devlin et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.training.objectives.objective import Loss, forward_batch
from regard.transformer.batch_layout import BatchLayout


@dataclass(frozen=True, kw_only=True)
class QuestionAnswering:
    """Columns `tokens` and `answer`: the positions of the first and last token of the answer in the sequence.

    Two softmaxes over the tokens of each sequence, one for the start and one for the end; the loss of a sequence is the
    mean of their cross-entropies.
    """

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the loss summed over the sequences, and in how many of them both positions are correct."""
        logits, layout = forward_batch(network, batch).logits, batch["tokens"].layout
        positions = batch["answer"].values.view(-1, 2)
        start_loss, start_correct = _position_cross_entropy(logits[:, 0], layout, positions[:, 0])
        end_loss, end_correct = _position_cross_entropy(logits[:, 1], layout, positions[:, 1])
        correct = {} if network.training else {"accuracy": int((start_correct & end_correct).sum())}
        return Loss((start_loss + end_loss) / 2, layout.batch_size, correct)


def _position_cross_entropy(logits: Tensor, layout: BatchLayout, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy over the positions of each sequence, and which sequences are correct."""
    padding = logits.new_full((layout.batch_size, layout.longest), -torch.inf)
    padded = padding.index_put((layout.row_indices, layout.column_indices), logits)
    return nn.functional.cross_entropy(padded, positions, reduction="sum"), padded.argmax(dim=1) == positions
