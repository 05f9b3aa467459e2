"""Guess hidden words: masked language modelling (Devlin et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.batches import Batch, Ids
from regard.data.encoders.encoder_base import IGNORED
from regard.training.objectives.objective import Asked, Labelling, read


@dataclass(frozen=True, kw_only=True)
class Masked(Labelling):
    """A column `tokens`. Of the places, `share` are chosen: 80% of them are masked, 10% get a random token, 10% stay.

    Only chosen places are scored. Special tokens are never chosen. With `continues`, whole words are chosen: it says of
    each token of the vocabulary whether it goes on with the word before it (`##ing`).
    """

    mask: int
    """The mask token."""
    special: tuple[int, ...]
    """Tokens that are never chosen, and never put in a token's place; the mask token is one."""
    vocabulary: int
    """How many tokens there are."""
    share: float = 0.15
    continues: Bool[Tensor, " vocabulary"] | None = None

    def ask(self, batch: Batch) -> Asked:
        """The tokens at the places that were chosen."""
        given, labels = self.hide(batch["tokens"])
        hidden = replace(batch, columns={**batch.columns, "tokens": Ids(given, batch["tokens"].rows)})
        return Asked(read, hidden, labels)

    def hide(self, tokens: Ids) -> tuple[Int[Tensor, " places"], Int[Tensor, " places"]]:
        """What the network reads, and what it is to say where."""
        values = tokens.tokens.cpu()
        chosen, draw = self._choose(values, tokens), torch.rand(values.shape)
        anything = self.ordinary[torch.randint(len(self.ordinary), values.shape)]
        given = torch.where(chosen & (draw < 0.8), self.mask, values)
        given = torch.where(chosen & (draw >= 0.9), anything, given)
        labels = torch.where(chosen, values, IGNORED)
        return given.to(tokens.tokens.device), labels.to(tokens.tokens.device)

    def _choose(self, values: Tensor, tokens: Ids) -> Bool[Tensor, " places"]:
        ordinary = ~torch.isin(values, torch.tensor(self.special))
        if self.continues is None:
            return (torch.rand(values.shape) < self.share) & ordinary
        begins = ~self.continues[values] | ~ordinary
        begins[tokens.rows.first.cpu()] = True
        word = begins.cumsum(0) - 1
        return (torch.rand(values.shape) < self.share)[word] & ordinary

    @cached_property
    def ordinary(self) -> Int[Tensor, " ordinary"]:
        """The tokens that may stand in another's place."""
        every = torch.arange(self.vocabulary)
        return every[~torch.isin(every, torch.tensor(self.special))]
