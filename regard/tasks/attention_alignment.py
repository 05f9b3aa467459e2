"""Which word of the source a word of the target comes from, told by what the decoder looked at."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.tasks.sentences import Span

Pairs = tuple[tuple[int, int], ...]
"""Word numbers, source and target, from 0."""


def words(text: str) -> list[Span]:
    """The words of a text: what stands between white space."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def owners(spans: Sequence[Span], of: Sequence[Span]) -> list[int | None]:
    """For each span of characters the word that it overlaps most, if any."""
    found: list[int | None] = []
    for start, end in spans:
        shared = [min(end, word_end) - max(start, word_start) for word_start, word_end in of]
        best = max(range(len(of)), key=shared.__getitem__, default=None)
        found.append(best if best is not None and shared[best] > 0 else None)
    return found


def written_spans(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[Span]:
    """The characters that each token added to the text, read off the text of ever more tokens."""
    ends = [len(decode(tokens[: count + 1])) for count in range(len(tokens))]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def align(
    looked: Float[Tensor, "written source"],
    source_spans: Sequence[Span],
    source: str,
    target_spans: Sequence[Span],
    target: str,
) -> Pairs:
    """Pairs of word numbers, source and target: each target word with the source word that it looked at most.

    A word looks at another with all its tokens, at all tokens of the other. Tokens that are no text (an end token,
    where much of the attention goes) are left out.
    """
    source_words, target_words = words(source), words(target)
    seen = torch.zeros(len(target_words), len(source_words), dtype=torch.float64)
    columns = owners(source_spans, source_words)
    for line, word in zip(looked.tolist(), owners(target_spans, target_words), strict=True):
        for share, column in zip(line, columns, strict=True):
            if word is not None and column is not None:
                seen[word, column] += share
    return tuple((int(row.argmax()), number) for number, row in enumerate(seen) if bool(row.any()))
