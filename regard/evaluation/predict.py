"""Predictions for encoded examples: labels of texts, tags of words, answers to questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.data.encoders.encoder_base import EXAMPLE_COLUMN
from regard.data.encoders.questions import no_answer_position
from regard.data.encoders.tags import NO_WORD
from regard.data.example import Question
from regard.training.objectives.objective import forward_batch
from regard.training.run.batch_stream import to_device

MAX_ANSWER_LENGTH = 30
"""Maximum number of tokens of an answer, as in BERT's scripts."""


@torch.no_grad()
def predict_labels(network: Any, batches: Iterable[Batch], device: str = "cpu") -> dict[int, int]:
    """Return the id of the most likely label, by example index."""
    predictions: dict[int, int] = {}
    for batch in batches:
        label_ids = forward_batch(network, to_device(batch, torch.device(device))).logits.argmax(dim=-1)
        predictions.update(zip(batch.indices.tolist(), label_ids.tolist(), strict=True))
    return predictions


@torch.no_grad()
def predict_tags(network: Any, batches: Iterable[Batch], device: str = "cpu") -> dict[int, dict[int, int]]:
    """Return the id of the most likely tag, by example index and word index.

    A word in several windows has the tag from the window in which it is farthest from the edge.
    """
    predictions: dict[int, dict[int, int]] = {}
    margins: dict[tuple[int, int], int] = {}
    for batch in batches:
        tag_ids = forward_batch(network, to_device(batch, torch.device(device))).logits.argmax(dim=-1).cpu()
        for example, (row_tags, words) in _split_rows(batch, tag_ids, batch["words"].values):
            sentence = predictions.setdefault(example, {})
            for position, word in enumerate(words.tolist()):
                first_token = word != NO_WORD and (position == 0 or words[position - 1] != word)
                margin = min(position, len(words) - 1 - position)
                if first_token and margin > margins.get((example, word), -1):
                    margins[example, word] = margin
                    sentence[word] = int(row_tags[position])
    return predictions


@torch.no_grad()
def predict_answers(
    network: Any, batches: Iterable[Batch], questions: Sequence[Question], cls_token_id: int | None, device: str = "cpu"
) -> dict[int, str]:
    """Return the most likely answer, by question index: the span of the context with the highest sum of logits.

    The answer is the empty string if "no answer" (the position of the CLS token) has a higher sum in every window. This
    is only allowed if some of the questions have no answer, as in SQuAD 2.0.
    """
    allow_no_answer = any(not question.answers for question in questions)
    best: dict[int, tuple[float, str]] = {}
    no_answer_scores: dict[int, float] = {}
    for batch in batches:
        logits = forward_batch(network, to_device(batch, torch.device(device))).logits.cpu().double()
        columns = (batch[name].values for name in ("tokens", "begins", "ends"))
        for example, (row_logits, tokens, starts, ends) in _split_rows(batch, logits, *columns):
            score, first, last = best_span(row_logits, ends > 0)
            if score > best.setdefault(example, (-torch.inf, ""))[0]:
                best[example] = score, questions[example].context[int(starts[first]) : int(ends[last])]
            no_answer_score = float(row_logits[no_answer_position(tokens.tolist(), cls_token_id)].sum())
            no_answer_scores[example] = min(no_answer_scores.get(example, torch.inf), no_answer_score)
    unanswered = {example for example in best if allow_no_answer and no_answer_scores[example] > best[example][0]}
    return {example: "" if example in unanswered else text for example, (_, text) in best.items()}


def best_span(logits: Tensor, allowed: Tensor) -> tuple[float, int, int]:
    """Return the best span: the sum of its start and end logits, its first and its last position.

    Both positions are allowed, in order, and at most `MAX_ANSWER_LENGTH` tokens apart.
    """
    start, end = logits.masked_fill(~allowed[:, None], -torch.inf).unbind(dim=1)
    valid = torch.ones(len(start), len(end), dtype=torch.bool).triu().tril(MAX_ANSWER_LENGTH - 1)
    sums = (start[:, None] + end[None, :]).masked_fill(~valid, -torch.inf)
    first, last = divmod(int(sums.argmax()), len(end))
    return float(sums[first, last]), first, last


def _split_rows(batch: Batch, *values: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield the example index of each row of a batch, and the values of the row in each tensor."""
    sizes = list(batch["tokens"].layout.lengths)
    rows = zip(*(torch.split(value, sizes) for value in values), strict=True)
    for example, row_values in zip(batch[EXAMPLE_COLUMN].values.tolist(), rows, strict=True):
        yield example, list(row_values)
