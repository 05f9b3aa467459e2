"""What a model wrote, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.generation.result import Hypothesis
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Written:
    """A text, and how it came about."""

    text: str
    score: float
    """The log-probability that it was ranked by: in a beam search, over its length to the power of the penalty."""
    stopped: str
    """Why it ends where it ends: end, length, text, repeat or stuck (the rules left nothing to write)."""
    truncated: int = 0
    """How many tokens of the input were cut off because they did not fit the network."""
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    """The log-probability of each token."""
    alignment: tuple[tuple[int, int], ...] | None = None
    """On request: pairs of word numbers, source and target, from 0."""
    alternatives: tuple[Written, ...] = ()
    """The next best, where more than one was asked for."""

    def as_json(self) -> dict[str, Any]:
        """All of it, for machines."""
        said: dict[str, Any] = {
            "text": self.text,
            "score": round(self.score, 6),
            "stopped": self.stopped,
            "truncated": self.truncated,
            "tokens": list(self.tokens),
            "token_scores": [round(score, 6) for score in self.token_scores],
        }
        if self.alignment is not None:
            said["alignment"] = [list(pair) for pair in self.alignment]
        if self.alternatives:
            said["alternatives"] = [other.as_json() for other in self.alternatives]
        return said


EMPTY = Written(text="", score=0.0, stopped="end")
"""What becomes of an empty text."""


def written(hypothesis: Hypothesis, tokenizer: Tokenizer, truncated: int) -> Written:
    """A hypothesis as text."""
    return Written(
        text=tokenizer.decode(hypothesis.tokens),
        score=hypothesis.score,
        stopped=hypothesis.stopped.value,
        truncated=truncated,
        tokens=tuple(map(tokenizer.token, hypothesis.tokens)),
        token_scores=hypothesis.token_scores,
    )


def joined(parts: Sequence[Written]) -> Written:
    """The pieces of one text, put together again."""
    if len(parts) == 1:
        return parts[0]
    others = min(len(part.alternatives) for part in parts)
    return Written(
        text=" ".join(part.text for part in parts),
        score=sum(part.score for part in parts),
        stopped=next((part.stopped for part in parts if part.stopped != "end"), "end"),
        truncated=sum(part.truncated for part in parts),
        tokens=tuple(token for part in parts for token in part.tokens),
        token_scores=tuple(score for part in parts for score in part.token_scores),
        alternatives=tuple(joined([part.alternatives[n] for part in parts]) for n in range(others)),
    )


class Unfolding:
    """The text of a stream of tokens: what is new of it, as soon as it can no longer change."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self.decode = decode
        self.tokens: list[int] = []
        self.shown = ""

    def add(self, tokens: Iterable[int]) -> str:
        """Some more tokens; the text they add. Half a character waits for its other half."""
        self.tokens.extend(tokens)
        text = self.decode(self.tokens).rstrip("\ufffd")
        if not text.startswith(self.shown):
            return ""
        new, self.shown = text[len(self.shown) :], text
        return new

    def rest(self, text: str) -> str:
        """What is left of the whole text."""
        return text[len(self.shown) :] if text.startswith(self.shown) else ""


def batched(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Some texts at a time, so that a tokenizer can use all cores."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
