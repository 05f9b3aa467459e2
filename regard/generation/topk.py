"""Logsumexp and top-k over the vocabulary, for search strategies.

Computed by the native kernels where they are available, else by torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.generation.logits_processors import Logits
from regard.native import ops
from regard.native.library import available
from regard.native.ops import BlockMaxima

RowValues = Float[Tensor, "batch 1"]
Candidate = tuple[float, int, int, float]
"""A candidate of a beam search: cumulative score, index of the parent sequence, token, log-probability of the token."""
CHUNK = 64
"""Number of tokens in a chunk of `chunked_topk`."""


def logsumexp(logits: Logits) -> RowValues:
    """Return the logsumexp of each row (log-probability = logit - logsumexp); raise ValueError if it is not finite."""
    return _logsumexp(logits, None)


def logsumexp_and_block_max(logits: Logits) -> tuple[RowValues, BlockMaxima | None]:
    """Return the logsumexp, and the maxima of blocks of logits if a native kernel computed them.

    The block maxima speed up a later top-k. They stay valid upper bounds while the logits do not increase.
    """
    block_max = ops.empty_block_maxima(*logits.shape) if _use_native(logits) else None
    return _logsumexp(logits, block_max), block_max


def _logsumexp(logits: Logits, block_max: BlockMaxima | None) -> RowValues:
    if _use_native(logits):
        result, is_finite = ops.logsumexp(logits, block_max)
    else:
        result = logits.logsumexp(dim=1, keepdim=True)
        is_finite = math.isfinite(result.sum().item())  # one value that is not finite makes the sum not finite
    if not is_finite:
        raise ValueError(
            "logits contain NaN or infinity: the weights are damaged, or their data type (float16) overflows. Load the "
            'model with precision="float32" (command: --precision float32)'
        )
    return result


def topk(
    scores: Logits, k: int, block_max: BlockMaxima | None = None
) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """Return the `k` highest scores of each row, sorted, and their tokens. `block_max`: upper bounds of the scores."""
    if _use_native(scores):
        return ops.topk(scores, k, block_max)
    return chunked_topk(scores, k)


def beam_candidates(
    processed: Logits,
    offset: RowValues | None,
    prefix_scores: Sequence[float],
    logits: Logits,
    logsumexp: RowValues,
    batch_size: int,
    k: int,
    block_max: BlockMaxima | None = None,
) -> list[list[Candidate]]:
    """Return the `k` best candidates of each input, sorted by score, best first.

    Every input has the same number of sequences (rows). The score of a candidate is the prefix score of its row plus
    the processed score of its token minus `offset`. `logits` and `logsumexp` give the token's log-probability before
    logits processors. `block_max`: upper bounds of the processed scores.
    """
    if _use_native(processed):
        columns: Iterable[Sequence[Any]] = ops.beam_topk(
            processed, offset, prefix_scores, logits, logsumexp, batch_size, k, block_max
        )
    else:
        columns = (
            column.flatten().tolist()
            for column in _beam_candidates_torch(processed, offset, prefix_scores, logits, logsumexp, batch_size, k)
        )
    candidates = list(zip(*columns, strict=True))
    per_input = len(candidates) // batch_size
    return [candidates[start : start + per_input] for start in range(0, len(candidates), per_input)]


def _beam_candidates_torch(
    processed: Logits,
    offset: RowValues | None,
    prefix_scores: Sequence[float],
    logits: Logits,
    logsumexp: RowValues,
    batch_size: int,
    k: int,
) -> tuple[Tensor, ...]:
    """Compute the same with torch: scores, parents, tokens and log-probabilities, one row for each input."""
    values, tokens = chunked_topk(processed, k)
    totals = values if offset is None else values - offset
    totals = totals + torch.tensor(prefix_scores, dtype=logsumexp.dtype, device=logsumexp.device)[:, None]
    log_probs = logits.gather(1, tokens) - logsumexp
    best, indices = totals.view(batch_size, -1).topk(min(k, totals.numel() // batch_size))
    tokens, log_probs = (column.view(batch_size, -1).gather(1, indices) for column in (tokens, log_probs))
    return best, indices // values.shape[1], tokens, log_probs


def _use_native(scores: Logits) -> bool:
    return scores.device.type == "cpu" and scores.dtype == torch.float32 and available()


def chunked_topk(scores: Logits, k: int) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """Compute `torch.topk` over each row, several times as fast for large vocabularies.

    The `k` best tokens are in the `k` chunks with the highest maxima, so only these chunks are searched.
    """
    num_chunks = scores.shape[1] // CHUNK
    if num_chunks < 4 * k:
        values, tokens = scores.topk(min(k, scores.shape[1]))
        return values, tokens
    chunks = scores[:, : num_chunks * CHUNK].view(len(scores), num_chunks, CHUNK)
    best_chunks = chunks.amax(dim=-1).topk(k).indices
    inside = chunks.gather(1, best_chunks[:, :, None].expand(-1, -1, CHUNK)).flatten(1)
    values, indices = torch.cat([inside, scores[:, num_chunks * CHUNK :]], dim=1).topk(k)
    chunk = best_chunks.gather(1, (indices // CHUNK).clamp(max=k - 1))
    remainder = indices - k * CHUNK  # not negative for tokens after the last whole chunk
    return values, torch.where(remainder < 0, chunk * CHUNK + indices % CHUNK, num_chunks * CHUNK + remainder)
