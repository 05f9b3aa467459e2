"""What a network says of encoded examples: a label for each, a tag for each word, an answer to each question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.data.encoders.encoder_base import ORIGIN
from regard.data.encoders.questions import nowhere
from regard.data.encoders.tags import NO_WORD
from regard.data.example import Question
from regard.training.objectives.objective import read
from regard.training.run.batch_stream import moved

LONGEST_ANSWER = 30
"""Tokens of the longest answer, as in the scripts that came with BERT."""


@torch.no_grad()
def labels(network: Any, batches: Iterable[Batch], device: str = "cpu") -> dict[int, int]:
    """The number of the likeliest label, by the number of the example."""
    found: dict[int, int] = {}
    for batch in batches:
        said = read(network, moved(batch, torch.device(device))).logits.argmax(dim=-1)
        found.update(zip(batch.indices.tolist(), said.tolist(), strict=True))
    return found


@torch.no_grad()
def tags(network: Any, batches: Iterable[Batch], device: str = "cpu") -> dict[int, dict[int, int]]:
    """The number of the likeliest tag, by example and word.

    A word that is in several windows has the tag of the one in which it stands farthest from the edge.
    """
    found: dict[int, dict[int, int]] = {}
    margins: dict[tuple[int, int], int] = {}
    for batch in batches:
        said = read(network, moved(batch, torch.device(device))).logits.argmax(dim=-1).cpu()
        for example, (tags_said, words) in _rows(batch, said, batch["words"].tokens):
            sentence = found.setdefault(example, {})
            for place, word in enumerate(words.tolist()):
                first = word != NO_WORD and (place == 0 or words[place - 1] != word)
                margin = min(place, len(words) - 1 - place)
                if first and margin > margins.get((example, word), -1):
                    margins[example, word] = margin
                    sentence[word] = int(tags_said[place])
    return found


@torch.no_grad()
def answers(
    network: Any, batches: Iterable[Batch], questions: Sequence[Question], classify: int | None, device: str = "cpu"
) -> dict[int, str]:
    """The likeliest answer, by the number of the question: the part of the context with the highest sum of scores.

    It is the empty text where "no answer" (the place of the token `classify`) has a higher sum in every window; that is
    only tried where some of the questions have no answer, as in SQuAD 2.0.
    """
    may_be_none = any(not question.answers for question in questions)
    best: dict[int, tuple[float, str]] = {}
    nothing: dict[int, float] = {}
    for batch in batches:
        scores = read(network, moved(batch, torch.device(device))).logits.cpu().double()
        columns = (batch[name].tokens for name in ("tokens", "begins", "ends"))
        for example, (row, tokens, begins, ends) in _rows(batch, scores, *columns):
            score, first, last = best_span(row, ends > 0)
            if score > best.setdefault(example, (-torch.inf, ""))[0]:
                best[example] = score, questions[example].context[int(begins[first]) : int(ends[last])]
            here = float(row[nowhere(tokens.tolist(), classify)].sum())
            nothing[example] = min(nothing.get(example, torch.inf), here)
    none = {example for example in best if may_be_none and nothing[example] > best[example][0]}
    return {example: "" if example in none else text for example, (_, text) in best.items()}


def best_span(scores: Tensor, allowed: Tensor) -> tuple[float, int, int]:
    """The highest sum of a first and a last token's scores, and these tokens: both allowed, in order, not too far."""
    begin, end = scores.masked_fill(~allowed[:, None], -torch.inf).unbind(dim=1)
    near = torch.ones(len(begin), len(end), dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
    sums = (begin[:, None] + end[None, :]).masked_fill(~near, -torch.inf)
    first, last = divmod(int(sums.argmax()), len(end))
    return float(sums[first, last]), first, last


def _rows(batch: Batch, *values: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
    """The example of each row of a batch, and what these values are there."""
    sizes = list(batch["tokens"].rows.lengths)
    parts = zip(*(torch.split(value, sizes) for value in values), strict=True)
    for example, part in zip(batch[ORIGIN].tokens.tolist(), parts, strict=True):
        yield example, list(part)
