"""What searches ask of the scores of a vocabulary: what they add up to, and which are the best.

By the compiled parts where the machine has them, else by torch.
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
from regard.native.ops import Peaks

Each = Float[Tensor, "rows 1"]
Candidate = tuple[float, int, int, float]
"""A continuation: what it comes to, the row that it continues, the token, and the token's log-probability."""
CHUNK = 64
"""Tokens of which only the best is looked at first, when the best of a vocabulary are looked for."""


def whole(logits: Logits) -> Each:
    """log Σ exp: what log-probabilities are less than logits. Stops if it is no number."""
    return _whole(logits, None)


def whole_and_peaks(logits: Logits) -> tuple[Each, Peaks | None]:
    """The same, and what the compiled parts saw on the way, which makes it easy to find the best: as long as scores are
    what they are, or less."""
    peaks = ops.no_peaks(*logits.shape) if _compiled(logits) else None
    return _whole(logits, peaks), peaks


def _whole(logits: Logits, peaks: Peaks | None) -> Each:
    if _compiled(logits):
        found, good = ops.log_sum(logits, peaks)
    else:
        found = logits.logsumexp(dim=1, keepdim=True)
        good = math.isfinite(found.sum().item())  # one that is none makes the sum none
    if not good:
        raise ValueError("the network gives no numbers (NaN): its weights are damaged, or overflow their type")
    return found


def best(
    scores: Logits, count: int, peaks: Peaks | None = None
) -> tuple[Float[Tensor, "rows best"], Int[Tensor, "rows best"]]:
    """The best tokens of each row, the best first, with their scores, which are no larger than the peaks."""
    if _compiled(scores):
        return ops.best(scores, count, peaks)
    return top(scores, count)


def continuations(
    ruled: Logits,
    less: Each | None,
    before: Sequence[float],
    logits: Logits,
    sums: Each,
    texts: int,
    count: int,
    peaks: Peaks | None = None,
) -> list[list[Candidate]]:
    """The best continuations of each text, of which each has as many rows, by what a row had before and the score of a
    token there as the rules have it, less something. The best come first. No such score is larger than the peaks."""
    if _compiled(ruled):
        found: Iterable[Sequence[Any]] = ops.continuations(ruled, less, before, logits, sums, texts, count, peaks)
    else:
        found = (part.flatten().tolist() for part in _continuations(ruled, less, before, logits, sums, texts, count))
    flat = list(zip(*found, strict=True))
    each = len(flat) // texts
    return [flat[at : at + each] for at in range(0, len(flat), each)]


def _continuations(
    ruled: Logits, less: Each | None, before: Sequence[float], logits: Logits, sums: Each, texts: int, count: int
) -> tuple[Tensor, ...]:
    """The same by torch: what they come to, their parents, the tokens, and their log-probabilities, text by text."""
    values, tokens = top(ruled, count)
    totals = values if less is None else values - less
    totals = totals + torch.tensor(before, dtype=sums.dtype, device=sums.device)[:, None]
    own = logits.gather(1, tokens) - sums
    winners, at = totals.view(texts, -1).topk(min(count, totals.numel() // texts))
    tokens, own = (part.view(texts, -1).gather(1, at) for part in (tokens, own))
    return winners, at // values.shape[1], tokens, own


def _compiled(scores: Logits) -> bool:
    return scores.device.type == "cpu" and scores.dtype == torch.float32 and available()


def top(scores: Logits, count: int) -> tuple[Float[Tensor, "rows best"], Int[Tensor, "rows best"]]:
    """The best tokens of each row, as `torch.topk` finds them, and several times as fast on large vocabularies.

    The best `count` tokens are in the `count` chunks with the best first tokens: only these are looked through.
    """
    chunks = scores.shape[1] // CHUNK
    if chunks < 4 * count:
        values, tokens = scores.topk(min(count, scores.shape[1]))
        return values, tokens
    body = scores[:, : chunks * CHUNK].view(len(scores), chunks, CHUNK)
    which = body.amax(dim=-1).topk(count).indices
    inside = body.gather(1, which[:, :, None].expand(-1, -1, CHUNK)).flatten(1)
    values, at = torch.cat([inside, scores[:, chunks * CHUNK :]], dim=1).topk(count)
    chunk = which.gather(1, (at // CHUNK).clamp(max=count - 1))
    rest = at - count * CHUNK
    return values, torch.where(rest < 0, chunk * CHUNK + at % CHUNK, chunks * CHUNK + rest)
