"""From generated tokens to text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from regard.generation.result import DecodingResult, Hypothesis
from regard.tasks.generated_text import GeneratedText
from regard.tokenization.tokenizer import Tokenizer

ResultT = TypeVar("ResultT", bound=GeneratedText)


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
