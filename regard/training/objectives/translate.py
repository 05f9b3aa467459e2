"""Sequence-to-sequence learning: translation, summarization (Sutskever et al. 2014, Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from regard.data.batches import Batch, PackedColumn
from regard.training.objectives.objective import CrossEntropyObjective, LabeledBatch


@dataclass(frozen=True, kw_only=True)
class Seq2SeqLM(CrossEntropyObjective):
    """Columns `source` and `target`. The decoder gets the target up to each position, and predicts the next token.

        decoder inputs   <s>  ein  Mann
        labels           ein  Mann </s>

    The end token is a label like any other, so the model learns to stop. Batches are packed, without padding.
    """

    decoder_start: int
    """The first input token of the decoder."""

    def label_batch(self, batch: Batch) -> LabeledBatch:
        """Label each position of the decoder with a token of the target."""
        return LabeledBatch(self._forward, batch, batch["target"].values)

    def _forward(self, network: Any, batch: Batch) -> Any:
        source, target = batch["source"], batch["target"]
        return network(
            source.values, shift_right(target, self.decoder_start), layout=source.layout, target_layout=target.layout
        )


def shift_right(target: PackedColumn, start: int) -> torch.Tensor:
    """Return the inputs of the decoder: the start token, then each sequence without its last token."""
    inputs = target.values.roll(1)
    inputs[target.layout.first_indices] = start
    return inputs
