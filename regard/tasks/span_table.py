"""The scores of all spans of a context, merged over the windows that it was read in."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class SpanTable:
    """The score of each span of a context, by its first token and its length.

        context       the  cat  sat
        length 1      s11  s22  s33
        length 2      s12  s23   -          sij = start logit of i + end logit of j

    A span in several windows has its highest score. The score of no answer is the lowest of all windows: one window
    that has an answer is enough.
    """

    def __init__(self, num_tokens: int, max_length: int) -> None:
        self.scores = torch.full((num_tokens, max_length), -math.inf, dtype=torch.float64)
        self.no_answer = math.inf

    def add_window(self, first_token: int, start_logits: Tensor, end_logits: Tensor, no_answer: float) -> None:
        """Add the spans of a window, from the logits of its tokens of the context."""
        max_length = self.scores.shape[1]
        padded = torch.cat([end_logits, end_logits.new_full((max_length - 1,), -math.inf)])
        window = self.scores[first_token : first_token + len(start_logits)]
        torch.maximum(window, start_logits[:, None] + padded.unfold(0, max_length, 1), out=window)
        self.no_answer = min(self.no_answer, no_answer)

    def add_span(self, first_token: int, last_token: int, score: float) -> None:
        """Add one span; one that is too long, or that ends before it starts, is left out."""
        length = last_token - first_token
        if 0 <= length < self.scores.shape[1]:
            self.scores[first_token, length] = max(score, float(self.scores[first_token, length]))

    def best_spans(self, count: int) -> list[tuple[float, int, int]]:
        """Return score, first and last token of the best spans, best first."""
        scores, indices = self.scores.flatten().topk(min(count, self.scores.numel()))
        places = [divmod(index, self.scores.shape[1]) for index in indices.tolist()]
        return [
            (score, first, first + length)
            for score, (first, length) in zip(scores.tolist(), places, strict=True)
            if score > -math.inf
        ]

    def log_partition(self, with_no_answer: bool) -> float:
        """Return the log of the sum of exp(score) over all spans, which normalizes scores to probabilities."""
        scores = self.scores.flatten()
        if with_no_answer:
            scores = torch.cat([scores, scores.new_tensor([self.no_answer])])
        return float(scores.logsumexp(dim=0)) if len(scores) else -math.inf
