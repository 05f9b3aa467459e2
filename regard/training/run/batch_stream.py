"""The protocol of batches in the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch

from regard.data.batches import Batch, PackedColumn
from regard.transformer.batch_layout import BatchLayout


@runtime_checkable
class BatchStream(Protocol):
    """An endless stream of batches that can start anywhere, such as `regard.data.batches.Batches`."""

    def iter_from(self, epoch: int, step: int) -> Iterator[Batch]:
        """Yield batches from a step of an epoch on, epoch after epoch. Each has its epoch and step."""


def count_tokens(batch: Batch) -> int:
    """Return the number of tokens that the speed counts: of the target if there is one, else of the text."""
    name = next((name for name in ("target", "tokens", "label") if name in batch.columns), "pixels")
    return len(batch[name].values)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Move a batch to a device."""
    if device.type == "cpu":
        return batch
    columns = {
        name: PackedColumn(
            column.values.to(device), BatchLayout.of(column.layout.lengths, device, column.layout.start_positions)
        ).with_sequence_keys(column.layout.sequence_keys)
        for name, column in batch.columns.items()
    }
    return replace(batch, columns=columns)
