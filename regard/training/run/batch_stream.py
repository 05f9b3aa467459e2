"""What the loop needs to know of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch

from regard.data.batches import Batch, Ids
from regard.transformer.batch_layout import Rows


@runtime_checkable
class Batches(Protocol):
    """Batches without end, from any place on: `regard.data.batches.Batches`, or anything like it."""

    def at(self, epoch: int, step: int) -> Iterator[Batch]:
        """The batches from a step of an epoch on, epoch after epoch. Each knows its epoch and its step."""


def moved(batch: Batch, device: torch.device) -> Batch:
    """A batch on a device."""
    if device.type == "cpu":
        return batch
    columns = {
        name: Ids(ids.tokens.to(device), Rows.of(ids.rows.lengths, device, ids.rows.starts))
        for name, ids in batch.columns.items()
    }
    return replace(batch, columns=columns)
