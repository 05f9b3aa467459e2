"""Windows and truncation of encoded texts and pairs, independent of the special tokens of the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.example import Example
from regard.data.length_policy import LengthPolicy, Truncation, TruncationStats, window_spans
from regard.tokenization.tokenizer import Encoding


def token_positions(encoding: Encoding, sequence_id: int) -> list[int]:
    """Return the positions of the tokens of the first text (0) or the second (1)."""
    return [position for position, text_id in enumerate(encoding.sequence_ids) if text_id == sequence_id]


def window_positions(
    encoding: Encoding, sequence_id: int, policy: LengthPolicy | None, example: Example
) -> tuple[list[list[int]], TruncationStats]:
    """Return the token positions of each row: a window of one text, and all other tokens of the encoding."""
    text = token_positions(encoding, sequence_id)
    spans, stats = window_spans(policy, len(text), len(encoding) - len(text), example.file, example.line)
    if len(spans) == 1 and not stats.examples:
        return [list(range(len(encoding)))], stats
    return [window(encoding, text, start, end) for start, end in spans], stats


def window(encoding: Encoding, text: list[int], start: int, end: int) -> list[int]:
    """Return the positions of a window of the tokens of a text, with all other tokens of the encoding."""
    return _drop_positions(encoding, {*text[:start], *text[end:]})


def truncate_longest_first(
    encoding: Encoding, policy: LengthPolicy | None, example: Example
) -> tuple[list[int], TruncationStats]:
    """Return the positions that are kept if tokens are removed one by one from the end of the currently longer text."""
    excess = len(encoding) - policy.max_length if policy is not None else 0
    if excess <= 0:
        return list(range(len(encoding))), TruncationStats()
    text_length = len(token_positions(encoding, 0)) + len(token_positions(encoding, 1))
    if not isinstance(policy, Truncation) or excess >= text_length:
        window_spans(policy, text_length, len(encoding) - text_length, example.file, example.line)  # raises DataError
    return drop_longest_first(encoding, excess), TruncationStats(examples=1, tokens=excess)


def drop_longest_first(encoding: Encoding, count: int) -> list[int]:
    """Return the positions that are kept if `count` tokens are removed from the end of the currently longer text."""
    texts = [token_positions(encoding, 0), token_positions(encoding, 1)]
    return _drop_positions(encoding, {max(texts, key=len).pop() for _ in range(count)})


def _drop_positions(encoding: Encoding, dropped: set[int]) -> list[int]:
    return [position for position in range(len(encoding)) if position not in dropped]


def take(values: Sequence[int], positions: list[int]) -> list[int]:
    """Return the values at these positions."""
    return [values[position] for position in positions]
