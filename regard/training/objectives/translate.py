"""Write a target, given a source: translation, summarization (Sutskever et al. 2014, Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from regard.data.batches import Batch, Ids
from regard.training.objectives.objective import Asked, Labelling


@dataclass(frozen=True, kw_only=True)
class Translate(Labelling):
    """Columns `source` and `target`. The decoder sees the target up to each place, and is to say what comes next.

        decoder reads    <s>  ein  Mann
        and is to say    ein  Mann </s>

    The end token is a label like any other, so it is learnt; there is no padding that could hide it.
    """

    start: int
    """The token that the decoder reads first."""

    def ask(self, batch: Batch) -> Asked:
        """Every token of the target."""
        return Asked(self._read, batch, batch["target"].tokens)

    def _read(self, network: Any, batch: Batch) -> Any:
        source, target = batch["source"], batch["target"]
        return network(source.tokens, shift_right(target, self.start), rows=source.rows, target_rows=target.rows)


def shift_right(target: Ids, start: int) -> torch.Tensor:
    """What the decoder reads: each row without its last token, behind the start token."""
    given = target.tokens.roll(1)
    given[target.rows.first] = start
    return given
