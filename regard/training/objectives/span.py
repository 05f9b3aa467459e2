"""Say where in a text the answer to a question begins and ends (Devlin et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.training.objectives.objective import Loss, read
from regard.transformer.batch_layout import Rows


@dataclass(frozen=True, kw_only=True)
class Span:
    """Columns `tokens` and `answer`: the places in the row of the answer's first and last token.

    Two softmaxes over each row's own tokens, one for the beginning and one for the end; a row's loss is their mean.
    """

    def loss(self, network: Any, batch: Batch) -> Loss:
        """The sum over the rows, and in how many both places were right."""
        scores, rows = read(network, batch).logits, batch["tokens"].rows
        places = batch["answer"].tokens.view(-1, 2)
        begin, begin_right = _choice(scores[:, 0], rows, places[:, 0])
        end, end_right = _choice(scores[:, 1], rows, places[:, 1])
        right = {} if network.training else {"accuracy": int((begin_right & end_right).sum())}
        return Loss((begin + end) / 2, rows.batch, right)


def _choice(scores: Tensor, rows: Rows, place: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of cross-entropies over the places of each row, and which rows were right."""
    nowhere = scores.new_full((rows.batch, rows.longest), -torch.inf)
    padded = nowhere.index_put((rows.row_of, rows.columns), scores)
    return nn.functional.cross_entropy(padded, place, reduction="sum"), padded.argmax(dim=1) == place
