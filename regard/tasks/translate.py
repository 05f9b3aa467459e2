"""From a text to another, by a network with an encoder and a decoder: translating, summarizing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from torch import nn

from regard.generation.given import Given, TooLong, rooms
from regard.generation.result import Hypothesis, Result
from regard.generation.run import AtOnce, Wrote, generate, stream
from regard.generation.settings import Settings
from regard.tasks.alignment import align, written_spans
from regard.tasks.habits import Habits
from regard.tasks.languages import way
from regard.tasks.sentences import pieces
from regard.tasks.written import EMPTY, Unfolding, Written, batched, joined, written
from regard.text.tokenizer import Encoded, Tokenizer
from regard.transformer.network import EncoderDecoder

READ_AHEAD = 256


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How to translate. What is left out is as the model's authors publish it."""

    source_language: str | None = None
    target_language: str | None = None
    prefix: str | None = None
    """What stands before every source (T5: "summarize: ")."""
    beam: int | None = None
    n_best: int = 1
    length_penalty: float | None = None
    limit: int | None = None
    """How many tokens may be written at most."""
    begin: str = ""
    """What every target begins with."""
    alignment: bool = False
    rows: int = 16
    """How many rows are written at once."""

    def __post_init__(self) -> None:
        if self.n_best < 1:
            raise ValueError(f"the number of results must be 1 or more, found {self.n_best}")


@dataclass(frozen=True)
class Piece:
    """A text, or as much of it as is translated at once."""

    text: str
    encoded: Encoded
    prefix: int
    """How many characters stand before the text itself."""
    last: bool
    """Whether the text ends with it."""


class Translator:
    """A network and its tokenizer, ready to translate."""

    def __init__(self, network: nn.Module, tokenizer: Tokenizer, habits: Habits, wish: Wish) -> None:
        if not isinstance(network, EncoderDecoder):
            raise ValueError("only a network with an encoder and a decoder translates; try `generate` with this one")
        self.network, self.tokenizer, self.wish = network, tokenizer, wish
        self.way = way(tokenizer, habits, wish.source_language, wish.target_language, wish.prefix)
        habits, start = self.way.habits, self.way.habits.start
        if start is None:
            raise ValueError("the model does not say which token a target begins with: `decoder_start_token_id`")
        begun: list[int] = tokenizer.target.encode(wish.begin, special_tokens=False).ids if wish.begin else []
        if begun and habits.begin is not None:
            begun, habits = [habits.begin, *begun], replace(habits, begin=None)
        self.prompt = [start, *begun]
        self.begun = begun
        room, _ = rooms(network)
        assert room is not None
        self.room = room.learnt or room.meant or tokenizer.longest
        self.watched = _watched(network) if wish.alignment else None
        self.settings = Settings(
            search=habits.search(wish.beam, wish.n_best, wish.length_penalty),
            end=habits.end,
            rules=habits.rules(),
            limit=wish.limit,
            too_long=TooLong.CUT,
            watch=[self.watched] if self.watched else [],
        )
        self.at_once = AtOnce(rows=max(wish.rows, self.settings.search.size))

    def translate(self, texts: Iterable[str]) -> Iterator[Written]:
        """Translate every text; results come in the order of the texts, as soon as they are ready.

        A text that is too long for the network is translated sentence by sentence. An empty one stays empty.
        """
        waiting: deque[Piece | None] = deque()
        results = generate(self.network, self._given(texts, waiting), self.settings, at_once=self.at_once)
        parts: list[Written] = []
        for result in chain(results, [None]):
            while waiting and waiting[0] is None:
                waiting.popleft()
                yield EMPTY
            if result is None:
                return
            piece = waiting.popleft()
            assert piece is not None
            parts.append(self._written(piece, result))
            if piece.last:
                yield joined(parts)
                parts = []

    def stream(self, text: str) -> Iterator[str | Written]:
        """Translate one text: pieces of the translation as soon as they can no longer change, then all of it."""
        parts: list[Written] = []
        for piece in self._pieces([text]):
            if piece is None:
                yield EMPTY
                return
            if parts:
                yield " "
            unfolding = Unfolding(self.tokenizer.target.decode)
            for event in stream(self.network, [self._input(piece)], self.settings):
                if isinstance(event, Wrote):
                    yield unfolding.add(event.tokens)
                else:
                    parts.append(self._written(piece, event))
                    yield unfolding.rest(parts[-1].text)
        yield joined(parts)

    def _given(self, texts: Iterable[str], waiting: deque[Piece | None]) -> Iterator[Given]:
        """What the network reads. What is on its way is noted in `waiting`, empty texts as None."""
        for piece in self._pieces(texts):
            waiting.append(piece)
            if piece is not None:
                yield self._input(piece)

    def _pieces(self, texts: Iterable[str]) -> Iterator[Piece | None]:
        for batch in batched(texts, READ_AHEAD):
            for text in batch:
                if not text.strip():
                    yield None
                    continue
                parts = pieces(text, self.room, self._lengths)
                for number, part in enumerate(parts, 1):
                    whole = self.way.prefix + part
                    encoded = self.tokenizer.encode(whole, language=self.way.language)
                    yield Piece(part, encoded, len(self.way.prefix), number == len(parts))

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        rows = self.tokenizer.ids_of([self.way.prefix + text for text in texts], language=self.way.language)
        return [len(row) for row in rows]

    def _input(self, piece: Piece) -> Given:
        return Given(prompt=self.prompt, source=piece.encoded.ids)

    def _written(self, piece: Piece, result: Result) -> Written:
        first, *others = (self._one(piece, result, hypothesis) for hypothesis in result.hypotheses)
        return replace(first, alternatives=tuple(others))

    def _one(self, piece: Piece, result: Result, hypothesis: Hypothesis) -> Written:
        target = self.tokenizer.target
        one = written(hypothesis, target, result.truncated)
        if self.begun:
            one = replace(one, text=target.decode([*self.begun, *hypothesis.tokens]))
        if self.watched is None:
            return one
        # Tokens of the prefix belong to no word of the text, and tokens that were cut off were not looked at.
        looked = hypothesis.alignment(self.watched)
        spans = [(start - piece.prefix, end - piece.prefix) for start, end in piece.encoded.offsets]
        kept = [*spans[: looked.shape[1] - 1], spans[-1]]
        spans_written = written_spans([*self.begun, *hypothesis.tokens], target.decode)[len(self.begun) :]
        return replace(one, alignment=tuple(align(looked, kept, piece.text, spans_written, one.text)))


def _watched(network: EncoderDecoder) -> str:
    """The attention that alignments are read off: that of the last block but one, which shows them best in networks
    of the usual depth (Garg et al. 2019)."""
    layers = len(network.decoder.blocks)
    return f"decoder.blocks.{max(0, layers - 2)}.cross_attention"
