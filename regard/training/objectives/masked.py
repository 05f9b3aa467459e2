"""Masked language modelling (Devlin et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.batches import Batch, PackedColumn
from regard.data.encoders.encoder_base import IGNORE_INDEX
from regard.data.random_keys import token_keys, uniforms
from regard.training.objectives.objective import CrossEntropyObjective, LabeledBatch, forward_batch


@dataclass(frozen=True, kw_only=True)
class MaskedLM(CrossEntropyObjective):
    """Column `tokens`; some of its tokens are masked at random.

    Positions are selected with `mask_probability`: 80% of them get the mask token, 10% a random token, 10% are left
    unchanged. Only selected positions have a label. Special tokens are never selected. With `continuation_mask`, which
    is True for tokens of the vocabulary that continue a word (`##ing`), whole words are selected.
    """

    accuracy_ranks = (1, 5)
    mask_token: int
    special_tokens: tuple[int, ...]
    """Tokens that are never selected and never used as random replacements, including the mask token."""
    vocab_size: int
    mask_probability: float = 0.15
    continuation_mask: Bool[Tensor, " vocab_size"] | None = None

    def label_batch(self, batch: Batch) -> LabeledBatch:
        """Mask tokens at random. The labels are the original tokens at the selected positions."""
        inputs, labels = self.mask_tokens(batch["tokens"])
        masked = replace(batch, columns={**batch.columns, "tokens": PackedColumn(inputs, batch["tokens"].layout)})
        return LabeledBatch(forward_batch, masked, labels)

    def mask_tokens(self, tokens: PackedColumn) -> tuple[Int[Tensor, " positions"], Int[Tensor, " positions"]]:
        """Return the masked inputs and the labels."""
        values, keys = tokens.values.cpu(), token_keys(tokens.layout)
        selected = self._select_positions(values, tokens)
        if keys is None:
            random = torch.rand(values.shape)
            indices = torch.randint(len(self.replacement_tokens), values.shape)
        else:
            random = uniforms(keys, "mask action")
            indices = (uniforms(keys, "mask replacement") * len(self.replacement_tokens)).long()
        replacements = self.replacement_tokens[indices]
        inputs = torch.where(selected & (random < 0.8), self.mask_token, values)
        inputs = torch.where(selected & (random >= 0.9), replacements, inputs)
        labels = torch.where(selected, values, IGNORE_INDEX)
        return inputs.to(tokens.values.device), labels.to(tokens.values.device)

    def _select_positions(self, values: Tensor, tokens: PackedColumn) -> Bool[Tensor, " positions"]:
        is_ordinary, keys = ~torch.isin(values, torch.tensor(self.special_tokens)), token_keys(tokens.layout)
        random = torch.rand(values.shape) if keys is None else uniforms(keys, "mask selection")
        if self.continuation_mask is None:
            return (random < self.mask_probability) & is_ordinary
        starts_word = ~self.continuation_mask[values] | ~is_ordinary
        starts_word[tokens.layout.first_indices.cpu()] = True
        word_index = starts_word.cumsum(0) - 1
        if keys is not None:  # the number of a word is that of its first token
            random = random[starts_word]
        return (random < self.mask_probability)[word_index] & is_ordinary

    @cached_property
    def replacement_tokens(self) -> Int[Tensor, " replacement_tokens"]:
        """All tokens that may replace another: the vocabulary without special tokens."""
        tokens = torch.arange(self.vocab_size)
        return tokens[~torch.isin(tokens, torch.tensor(self.special_tokens))]
