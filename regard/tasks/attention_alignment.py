"""Word alignment between source and target, from the cross-attention weights of the decoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.tasks.sentences import Span
from regard.tasks.translate import Alignment


def word_spans(text: str) -> list[Span]:
    """Return the spans of the words of a text, separated by white space."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def overlapping_words(spans: Sequence[Span], words: Sequence[Span]) -> list[int | None]:
    """Return for each span of characters the index of the word that it overlaps most, or None."""
    indices: list[int | None] = []
    for start, end in spans:
        overlaps = [min(end, word_end) - max(start, word_start) for word_start, word_end in words]
        best = max(range(len(words)), key=overlaps.__getitem__, default=None)
        indices.append(best if best is not None and overlaps[best] > 0 else None)
    return indices


def token_spans(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[Span]:
    """Return the characters that each token adds to the text, found by decoding ever longer prefixes."""
    ends = [len(decode(tokens[: count + 1])) for count in range(len(tokens))]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def align(
    attention: Float[Tensor, "target source"],
    source_spans: Sequence[Span],
    source: str,
    target_spans: Sequence[Span],
    target: str,
) -> Alignment:
    """Align each target word with the source word that it attends to most.

    The attention of a word is summed over all its tokens and over all tokens of the source word. Tokens outside the
    text are ignored, such as the EOS token, which often gets much of the attention.
    """
    source_words, target_words = word_spans(source), word_spans(target)
    word_attention = torch.zeros(len(target_words), len(source_words), dtype=torch.float64)
    columns = overlapping_words(source_spans, source_words)
    for weights, word in zip(attention.tolist(), overlapping_words(target_spans, target_words), strict=True):
        for weight, column in zip(weights, columns, strict=True):
            if word is not None and column is not None:
                word_attention[word, column] += weight
    return tuple((int(row.argmax()), word) for word, row in enumerate(word_attention) if bool(row.any()))
