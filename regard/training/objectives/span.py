"""Say where in a text the answer to a question begins and ends (Devlin et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.training.objective import Batch, Loss, read
from regard.transformer.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Span:
    """Idss `tokens`, `start` and `end`: places in the row, both 0 where it holds no answer.

    Two softmaxes over each row's own tokens, one for the beginning and one for the end; a row's loss is their mean.
    """

    def loss(self, network: Any, batch: Batch) -> Loss:
        """The sum over the rows, and in how many both places were right."""
        scores, rows = read(network, batch).logits, batch["tokens"].rows
        begin, begin_right = _choice(scores[:, 0], rows, batch["start"].tokens)
        end, end_right = _choice(scores[:, 1], rows, batch["end"].tokens)
        right = {} if network.training else {"exact": int((begin_right & end_right).sum())}
        return Loss((begin + end) / 2, rows.batch, right)


def _choice(scores: Tensor, rows: Rows, place: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of cross-entropies over the places of each row, and which rows were right."""
    nowhere = scores.new_full((rows.batch, rows.longest), -torch.inf)
    padded = nowhere.index_put((rows.row_of, rows.columns), scores)
    return nn.functional.cross_entropy(padded, place, reduction="sum"), padded.argmax(dim=1) == place
