"""What a model wrote, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.generation.result import Hypothesis, Result
from regard.tasks.attention_alignment import Pairs, words
from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Written:
    """A text, and how it came about."""

    text: str
    score: float
    """The log-probability that it was ranked by: in a beam search, over its length to the power of the penalty."""
    stopped: str
    """Why it ends where it ends: end, length, text, repeat or stuck (the rules left nothing to write)."""
    limit: int = 0
    """How many tokens might have been written."""
    truncated: int = 0
    """How many tokens of the input were cut off because they did not fit the network."""
    pieces: int = 1
    """In how many pieces it was written, because the input was too long for the network in one."""
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    """The log-probability of each token."""
    alignment: Pairs | None = None
    """On request: pairs of word numbers, source and target, from 0."""
    alternatives: tuple[Written, ...] = ()
    """The next best, where more than one was asked for."""

    def as_json(self) -> dict[str, Any]:
        """All of it, for machines."""
        said: dict[str, Any] = {
            "text": self.text,
            "score": round(self.score, 6),
            "stopped": self.stopped,
            "limit": self.limit,
            "truncated": self.truncated,
            "pieces": self.pieces,
            "tokens": list(self.tokens),
            "token_scores": [round(score, 6) for score in self.token_scores],
        }
        if self.alignment is not None:
            said["alignment"] = [list(pair) for pair in self.alignment]
        if self.alternatives:
            said["alternatives"] = [other.as_json() for other in self.alternatives]
        return said


EMPTY = Written(text="", score=0.0, stopped="end", pieces=0)
"""What becomes of an empty text."""


class Reader:
    """Makes text of the tokens that a network writes. A network may have more tokens than its tokenizer; these are no
    text, and are left out of it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.known = frozenset(tokenizer.vocabulary().values())

    def text(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        return self.tokenizer.decode([token for token in tokens if token in self.known])

    def behind(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """The text of tokens as it stands behind a prompt: the space between two words is part of it."""
        given, whole = self.text(prompt), self.text([*prompt, *tokens])
        return whole[len(given) :] if whole.startswith(given) else self.text(tokens)

    def name(self, token: int) -> str:
        """A token as the vocabulary writes it."""
        return self.tokenizer.token(token) if token in self.known else f"<{token}>"

    def unsettled(self, token: int) -> bool:
        """Whether the next token may change how this one reads: a byte of a character, the first half of a word in
        CTRL's way of writing, or something that is no text and lets its neighbours meet."""
        name = self.name(token)
        return (name.startswith("<0x") and name.endswith(">")) or name.endswith("@@") or not self.text([token])

    def written(self, hypothesis: Hypothesis, result: Result, text: str) -> Written:
        """A hypothesis with its text."""
        return Written(
            text=text,
            score=hypothesis.score,
            stopped=hypothesis.stopped.value,
            limit=result.limit,
            truncated=result.truncated,
            tokens=tuple(map(self.name, hypothesis.tokens)),
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
        limit=max(part.limit for part in parts),
        truncated=sum(part.truncated for part in parts),
        pieces=len(parts),
        tokens=tuple(token for part in parts for token in part.tokens),
        token_scores=tuple(score for part in parts for score in part.token_scores),
        alignment=_joined_alignment(parts),
        alternatives=tuple(joined([part.alternatives[n] for part in parts]) for n in range(others)),
    )


def _joined_alignment(parts: Sequence[Written]) -> Pairs | None:
    """Source words are numbered through the whole text already, target words piece by piece."""
    pairs: list[tuple[int, int]] = []
    before = 0
    for part in parts:
        if part.alignment is None:
            return None
        pairs += [(source, before + target) for source, target in part.alignment]
        before += len(words(part.text))
    return tuple(pairs)


class Unfolding:
    """The text of a stream of tokens: what is new of it, as soon as it can no longer change."""

    def __init__(self, text: Callable[[Sequence[int]], str], unsettled: Callable[[int], bool]) -> None:
        self.text, self.unsettled = text, unsettled
        self.tokens: list[int] = []
        self.shown = ""

    def add(self, tokens: Iterable[int]) -> str:
        """Some more tokens; the text they add. Half a character waits for its other half."""
        self.tokens.extend(tokens)
        settled = len(self.tokens)
        while settled and self.unsettled(self.tokens[settled - 1]):
            settled -= 1
        return self.rest(self.text(self.tokens[:settled]).rstrip("\ufffd"))

    def rest(self, text: str) -> str:
        """What is left of the whole text."""
        new = text[len(self.shown) :] if text.startswith(self.shown) else ""
        self.shown += new
        return new
