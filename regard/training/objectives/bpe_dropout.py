"""Random segmentation of words, similar to BPE-dropout (Provilkov et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import Batch, PackedColumn
from regard.data.random_keys import token_keys, uniforms
from regard.training.objectives.objective import Loss, Objective
from regard.transformer.batch_layout import BatchLayout

NO_MERGE = -1
"""Entry of a token that is not the result of a merge."""
MergeTable = Int[Tensor, "_vocabulary 2"]
"""The pair of tokens that each token of a vocabulary was merged from."""
TokenIds = Int[Tensor, " tokens"]


@dataclass(frozen=True, kw_only=True)
class BpeDropout:
    """Wraps an objective: words are segmented into different tokens each time.

        the tokens     un believ able      ▁the       ▁cat
        may become     un believ a ble     ▁ t he     ▁cat

    The paper skips merges during tokenization. Here the merges of existing tokens are undone at random, which needs
    neither the text nor the tokenizer, so batches come from the encoded corpus as usual.
    """

    objective: Objective
    merge_tables: Mapping[str, MergeTable]
    """The columns to split, each with the merge table of its vocabulary."""
    probability: float
    """Probability that a token is split into the pair it was merged from; the two are split again with the same."""
    max_length: int | None = None
    """Maximum sequence length of the network."""

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the loss of the objective on the split batch; in evaluation mode, on the batch itself."""
        if not network.training:
            return self.objective.loss(network, batch)
        columns = {
            name: split_tokens(batch[name], merges, self.probability, self.max_length, name)
            for name, merges in self.merge_tables.items()
        }
        return self.objective.loss(network, replace(batch, columns={**batch.columns, **columns}))


def split_tokens(
    column: PackedColumn, merges: MergeTable, probability: float, max_length: int | None = None, name: str = ""
) -> PackedColumn:
    """Split each merged token with this probability into the pair it was merged from, then the new tokens, and so on.

    Nothing is truncated: a sequence that would become longer than `max_length` is left unsplit. If the sequences have
    keys for random draws, a sequence is split in the same way in any batch. Columns of different names are independent.
    """
    tokens, rows = column.values.cpu(), column.layout.row_indices.cpu()  # same random numbers for every device
    is_new = torch.ones_like(tokens, dtype=torch.bool)
    for depth in count():
        draws = _uniforms(rows, column.layout, f"bpe_dropout {name} {depth}")
        selected = is_new & (merges[tokens, 0] != NO_MERGE) & (draws < probability)  # a token has one chance only
        if not bool(selected.any()):
            break
        pairs = merges[tokens[selected]].flatten()
        repeats = 1 + selected.long()
        tokens, rows, is_new = (values.repeat_interleave(repeats) for values in (tokens, rows, selected))
        tokens[is_new] = pairs
    if max_length is not None:
        tokens, rows = _restore_long_sequences(column, tokens, rows, max_length)
    layout = BatchLayout.of(rows.bincount().tolist(), column.layout.device, column.layout.start_positions)
    return PackedColumn(tokens.to(column.values.device), layout.with_sequence_keys(column.layout.sequence_keys))


def _uniforms(rows: Int[Tensor, " tokens"], layout: BatchLayout, name: str) -> Float[Tensor, " tokens"]:
    """Return a random number for each token, given the row of each: by the keys of the rows if they have some."""
    if layout.sequence_keys is None:
        return torch.rand(rows.shape)
    lengths = BatchLayout.of(rows.bincount().tolist()).with_sequence_keys(layout.sequence_keys)
    keys = token_keys(lengths)
    assert keys is not None
    return uniforms(keys, name)


def _restore_long_sequences(
    column: PackedColumn, tokens: Tensor, rows: Tensor, max_length: int
) -> tuple[Tensor, Tensor]:
    """Undo the splits of sequences that became too long. Returns all tokens, and the row of each."""
    old_tokens, old_rows = column.values.cpu(), column.layout.row_indices.cpu()
    is_too_long = rows.bincount() > max_length
    kept, restored = ~is_too_long[rows], is_too_long[old_rows]
    rows = torch.cat([rows[kept], old_rows[restored]])
    order = rows.argsort(stable=True)
    return torch.cat([tokens[kept], old_tokens[restored]])[order], rows[order]


def merge_table(merges: Mapping[int, tuple[int, int]], vocab_size: int) -> MergeTable:
    """Convert the merges of a tokenizer to a table for `split_tokens`."""
    table = torch.full((vocab_size, 2), NO_MERGE)
    if merges:
        table[list(merges)] = torch.tensor(list(merges.values()))
    return table
