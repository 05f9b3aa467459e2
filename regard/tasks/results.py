"""The results of translation and generation, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from regard.generation.result import DecodingResult, Hypothesis
from regard.tasks.attention_alignment import Alignment, word_spans
from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class GeneratedText:
    """A generated text: the fields that translations and generations have in common."""

    text: str
    score: float
    """The log-probability, in a beam search divided by length^length_penalty."""
    stopped: str
    """Why generation stopped: `end`, `length`, `text`, `repeat` or `no_token` (see `StopReason`)."""
    max_new_tokens: int = 0
    """Maximum number of new tokens."""
    truncated: int = 0
    """Number of input tokens that were removed because the input was too long for the network."""
    chunks: int = 1
    """Number of chunks that the input was split into because it was too long for the network."""
    tokens: tuple[str, ...] = ()
    """The new tokens, as the vocabulary spells them."""
    token_scores: tuple[float, ...] = ()
    """The log-probability of each token."""
    alternatives: tuple[GeneratedText, ...] = ()
    """The other results, best first, if `n_best` is greater than 1."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        values: dict[str, Any] = {
            "text": self.text,
            "score": round(self.score, 6),
            "stopped": self.stopped,
            "max_new_tokens": self.max_new_tokens,
            "truncated": self.truncated,
            "chunks": self.chunks,
            "tokens": list(self.tokens),
            "token_scores": [round(score, 6) for score in self.token_scores],
        }
        if self.alternatives:
            values["alternatives"] = [alternative.as_json() for alternative in self.alternatives]
        return values


@dataclass(frozen=True, kw_only=True)
class Translation(GeneratedText):
    """The translation of one text."""

    alignment: Alignment | None = None
    """With `alignment=True`: pairs of word indices, source and target, from 0."""
    alternatives: tuple[Translation, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        values = super().as_json()
        alternatives = {"alternatives": values.pop("alternatives")} if self.alternatives else {}
        if self.alignment is not None:
            values["alignment"] = [list(pair) for pair in self.alignment]
        return values | alternatives


@dataclass(frozen=True, kw_only=True)
class Generation(GeneratedText):
    """The continuation of one prompt."""

    alternatives: tuple[Generation, ...] = ()


ResultT = TypeVar("ResultT", bound=GeneratedText)


EMPTY_TRANSLATION = Translation(text="", score=0.0, stopped="end", chunks=0)
"""The translation of an empty text."""


class Detokenizer:
    """Decodes generated tokens.

    The output layer of a network may have more tokens than its tokenizer; such ids have no text and are skipped.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocabulary_ids = frozenset(tokenizer.get_vocab().values())

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of the tokens."""
        return self.tokenizer.decode([token for token in tokens if token in self.vocabulary_ids])

    def decode_continuation(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """Return the text that the tokens add to a prompt, with the space between the two if there is one."""
        prompt_text, text = self.decode(prompt), self.decode([*prompt, *tokens])
        return text[len(prompt_text) :] if text.startswith(prompt_text) else self.decode(tokens)

    def token_string(self, token: int) -> str:
        """Return a token as the vocabulary spells it."""
        return self.tokenizer.id_to_token(token) if token in self.vocabulary_ids else f"<{token}>"

    def is_incomplete(self, token: int) -> bool:
        """Return whether the next token may change the text of this one.

        This holds for a byte of a multi-byte character, for the first part of a word in CTRL's vocabulary (`@@`), and
        for a token without text, after which its neighbours may merge.
        """
        name = self.token_string(token)
        return (name.startswith("<0x") and name.endswith(">")) or name.endswith("@@") or not self.decode([token])

    def make_result(
        self, result_type: type[ResultT], hypothesis: Hypothesis, result: DecodingResult, text: str
    ) -> ResultT:
        """Return the result for a hypothesis and its text."""
        return result_type(
            text=text,
            score=hypothesis.score,
            stopped=hypothesis.stopped.value,
            max_new_tokens=result.max_new_tokens,
            truncated=result.truncated,
            tokens=tuple(map(self.token_string, hypothesis.tokens)),
            token_scores=hypothesis.token_scores,
        )


def join_chunks(chunks: Sequence[Translation]) -> Translation:
    """Join the translations of the chunks of one text."""
    if len(chunks) == 1:
        return chunks[0]
    num_alternatives = min(len(chunk.alternatives) for chunk in chunks)
    return Translation(
        text=" ".join(chunk.text for chunk in chunks),
        score=sum(chunk.score for chunk in chunks),
        stopped=next((chunk.stopped for chunk in chunks if chunk.stopped != "end"), "end"),
        max_new_tokens=max(chunk.max_new_tokens for chunk in chunks),
        truncated=sum(chunk.truncated for chunk in chunks),
        chunks=len(chunks),
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        token_scores=tuple(score for chunk in chunks for score in chunk.token_scores),
        alignment=_join_alignments(chunks),
        alternatives=tuple(join_chunks([chunk.alternatives[n] for chunk in chunks]) for n in range(num_alternatives)),
    )


def _join_alignments(chunks: Sequence[Translation]) -> Alignment | None:
    """Join the alignments; source words already have their index in the whole text, target words that in the chunk."""
    pairs: list[tuple[int, int]] = []
    offset = 0
    for chunk in chunks:
        if chunk.alignment is None:
            return None
        pairs += [(source, offset + target) for source, target in chunk.alignment]
        offset += len(word_spans(chunk.text))
    return tuple(pairs)


class IncrementalDetokenizer:
    """Decodes a stream of tokens and returns new text as soon as it can no longer change."""

    def __init__(self, decode: Callable[[Sequence[int]], str], is_incomplete: Callable[[int], bool]) -> None:
        self.decode, self.is_incomplete = decode, is_incomplete
        self.tokens: list[int] = []
        self.emitted = ""

    def add(self, tokens: Iterable[int]) -> str:
        """Add tokens; return the new text. Incomplete UTF-8 sequences are held back."""
        self.tokens.extend(tokens)
        stable = len(self.tokens)
        while stable and self.is_incomplete(self.tokens[stable - 1]):
            stable -= 1
        return self.flush(self.decode(self.tokens[:stable]).rstrip("\ufffd"))

    def flush(self, text: str) -> str:
        """Return the part of `text` that was not returned yet."""
        new = text[len(self.emitted) :] if text.startswith(self.emitted) else ""
        self.emitted += new
        return new
