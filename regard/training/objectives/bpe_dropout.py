"""Write words in many ways: tokens taken apart at random, in the manner of BPE-dropout (Provilkov et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.batches import Batch, Ids
from regard.training.objectives.objective import Loss, Objective
from regard.transformer.batch_layout import Rows

NONE = -1
"""Stands for the parts of a token that has none."""
Parts = Int[Tensor, "_vocabulary 2"]
"""The two tokens that each token of a vocabulary was merged from."""
Tokens = Int[Tensor, " tokens"]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Another objective, which finds its words written in other tokens each time.

        the tokens     un believ able      ▁the       ▁cat
        may become     un believ a ble     ▁ t he     ▁cat

    The paper leaves out some merges while a text is cut. Here tokens are taken apart again, along the same merges: that
    needs no text and no tokenizer, and a batch is read from the encoded corpus as ever.
    """

    objective: Objective
    parts: Mapping[str, Parts]
    """Which columns are split, and along which table each."""
    chance: float
    """How often a token is taken apart, and each of its parts again."""
    longest: int | None = None
    """The longest row that the network can take."""

    def loss(self, network: Any, batch: Batch) -> Loss:
        """The objective's loss on the batch in other tokens. Without training it is the one on the batch itself."""
        if not network.training:
            return self.objective.loss(network, batch)
        found = {name: split(batch[name], parts, self.chance, self.longest) for name, parts in self.parts.items()}
        return self.objective.loss(network, replace(batch, columns={**batch.columns, **found}))


def split(column: Ids, parts: Parts, chance: float, longest: int | None = None) -> Ids:
    """The same rows, in which each token that has parts was taken apart with this chance; then each part, and so on.

    Nothing is ever cut off: a row that would become longer than `longest` stays as it is.
    """
    tokens, row_of = column.tokens.cpu(), column.rows.row_of.cpu()  # drawn on the CPU, it is the same on every device
    new = torch.ones_like(tokens, dtype=torch.bool)
    while bool((chosen := _choose(tokens, new, parts, chance)).any()):
        pieces = parts[tokens[chosen]].flatten()
        times = 1 + chosen.long()
        tokens, row_of, new = (values.repeat_interleave(times) for values in (tokens, row_of, chosen))
        tokens[new] = pieces
    if longest is not None:
        tokens, row_of = _with_long_rows_whole(column, tokens, row_of, longest)
    rows = Rows.of(row_of.bincount().tolist(), column.rows.device, column.rows.starts)
    return Ids(tokens.to(column.tokens.device), rows)


def _choose(tokens: Tokens, new: Bool[Tensor, " tokens"], parts: Parts, chance: float) -> Bool[Tensor, " tokens"]:
    """Which tokens are taken apart. Each is asked once only, so those that are not new stay what they are."""
    return new & (parts[tokens, 0] != NONE) & (torch.rand(tokens.shape) < chance)


def _with_long_rows_whole(column: Ids, tokens: Tensor, row_of: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Tokens and the row of each, where rows that have become too long are again as they were."""
    before, its_row = column.tokens.cpu(), column.rows.row_of.cpu()
    whole = row_of.bincount() > longest
    stay, back = ~whole[row_of], whole[its_row]
    row_of = torch.cat([row_of[stay], its_row[back]])
    order = row_of.argsort(stable=True)
    return torch.cat([tokens[stay], before[back]])[order], row_of[order]


def table(parts: Mapping[int, tuple[int, int]], vocabulary: int) -> Parts:
    """The parts of each token of a vocabulary, as `split` looks them up."""
    found = torch.full((vocabulary, 2), NONE)
    if parts:
        found[list(parts)] = torch.tensor(list(parts.values()))
    return found
