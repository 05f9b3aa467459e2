"""From a text to another, by a network with an encoder and a decoder: translating, summarizing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, repeat

from torch import nn

from regard.engine.shortlist import Shortlist
from regard.engine.shortlist_head import Listed
from regard.generation.decoding_options import Settings
from regard.generation.inputs import Given, TooLong, rooms
from regard.generation.result import Hypothesis, Result
from regard.generation.running_batch import Wrote
from regard.generation.scheduler import WINDOW, AtOnce, generate, stream
from regard.tasks.attention_alignment import Pairs, align, written_spans
from regard.tasks.generation_config import Habits
from regard.tasks.results import EMPTY, Reader, Unfolding, Written, joined
from regard.tasks.sentences import Span, pieces
from regard.tasks.translation_direction import way
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer import config
from regard.transformer.network import DecoderOnly, EncoderDecoder

WIDTHS, FEWEST, MOST = 32768, 16, 96
"""Rows of a narrow network are cheap, and many are needed before its matrices are what takes the time: so many rows are
written at once that they hold some 32,768 numbers a token, but no fewer than 16 and no more than 96."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How to translate. What is left out is as the model's authors publish it."""

    source_language: str | None = None
    target_language: str | None = None
    prefix: str | None = None
    """What stands before every source, in full or by the name of its task (T5: "summarize: ", or summarization)."""
    beam: int | None = None
    n_best: int = 1
    length_penalty: float | None = None
    limit: int | None = None
    """How many tokens may be written at most."""
    begin: str = ""
    """What every target begins with."""
    alignment: bool = False
    shortlist: Shortlist | None = None
    """Score only the tokens that go with those of the source: faster, and not quite the same."""
    rows: int | None = None
    """How many rows are written at once; a beam needs as many as it is wide. Left out: as many as suit the network."""


@dataclass(frozen=True)
class Piece:
    """A text, or as much of it as is translated at once."""

    text: str
    """The whole text."""
    start: int
    """Where the piece begins in it,"""
    end: int
    """and where it ends."""
    ids: list[int]
    """The tokens of the piece, with the prefix before it."""
    last: bool
    """Whether the text ends with it."""


Waiting = deque[tuple[int, Piece | None]]
"""What is on its way: how many empty texts come before a piece, and the piece. The last has none."""


class Translator:
    """A network and its tokenizer, ready to translate."""

    def __init__(self, network: nn.Module, tokenizer: Tokenizer, habits: Habits, wish: Wish) -> None:
        if not isinstance(network, EncoderDecoder):
            also = "; `generate` continues texts with this one" if isinstance(network, DecoderOnly) else ""
            raise ValueError(f"only a network with an encoder and a decoder translates{also}")
        self.tokenizer, self.reader = tokenizer, Reader(tokenizer.target)
        self.way = way(tokenizer, habits, wish.source_language, wish.target_language, wish.prefix)
        self._begin(wish.begin, self.way.habits)
        self.network = Listed(network, wish.shortlist, self._always()) if wish.shortlist else network
        room, _ = rooms(network)
        assert room is not None
        self.room = room.learnt or room.meant or tokenizer.longest
        self.watched = _watched(network) if wish.alignment else None
        self.settings = Settings(
            search=self.habits.search(wish.beam, wish.n_best, wish.length_penalty),
            end=self.habits.end,
            rules=self.habits.rules(wish.limit),
            limit=wish.limit,
            too_long=TooLong.CUT,
            watch=[self.watched] if self.watched else [],
        )
        assert isinstance(network.config, config.EncoderDecoder)
        rows = wish.rows or max(FEWEST, min(MOST, WIDTHS // network.config.model_dim))
        self.at_once = AtOnce(rows=max(rows, self.settings.search.size))

    def _begin(self, text: str, habits: Habits) -> None:
        """What every target begins with: the start token, and behind it the text that somebody wants there."""
        start = habits.start
        if start is None:
            raise ValueError("the model does not say which token a target begins with: `decoder_start_token_id`")
        self.begun: list[int] = self.tokenizer.target.encode(text, special_tokens=False).ids if text else []
        if self.begun and habits.begin is not None:
            self.begun, habits = [habits.begin, *self.begun], replace(habits, begin=None)
        self.habits, self.prompt = habits, [start, *self.begun]

    def _always(self) -> set[int]:
        """What any target may need: its ends, its languages, and what else is no word."""
        target, habits = self.tokenizer.target, self.habits
        special = (*asdict(target.special).values(), habits.begin, habits.last)
        return {*habits.end, *target.languages.values(), *(token for token in special if token is not None)}

    def translate(self, texts: Iterable[str], *, window: int = WINDOW) -> Iterator[Written]:
        """Translate every text; results come in the order of the texts, as soon as they are ready.

        A text that is too long for the network is translated in pieces of whole sentences. An empty one stays empty.
        They are read `window` at a time, to be sorted by length, and tokenized an eighth of that at a time; with 1,
        each is done before the next is read.
        """
        waiting: Waiting = deque()
        given = self._given(texts, waiting, window // 8)
        results = generate(self.network, given, self.settings, at_once=self.at_once, window=window)
        parts: list[Written] = []
        for result in chain(results, [None]):
            empty, piece = waiting.popleft()
            yield from repeat(EMPTY, empty)
            if piece is None or result is None:
                return
            parts.append(self._written(piece, result))
            if piece.last:
                yield joined(parts)
                parts = []

    def stream(self, text: str) -> Iterator[str | Written]:
        """Translate one text: pieces of the translation as soon as they can no longer change, then all of it."""
        parts: list[Written] = []
        (found,) = self._pieces([text])
        for piece in found:
            if parts:
                yield " "
            unfolding = Unfolding(self._text, self.reader.unsettled)
            for event in stream(self.network, [self._input(piece)], self.settings, at_once=self.at_once):
                if isinstance(event, Wrote):
                    yield unfolding.add(event.tokens)
                else:
                    parts.append(self._written(piece, event))
                    yield unfolding.rest(parts[-1].text)
        yield joined(parts) if parts else EMPTY

    def _given(self, texts: Iterable[str], waiting: Waiting, together: int) -> Iterator[Given]:
        """What the network reads; what is on its way is noted in `waiting`. So many texts are tokenized in one go."""
        empty, texts = 0, iter(texts)
        while some := list(islice(texts, max(together, 1))):
            for found in self._pieces(some):
                empty += not found
                for piece in found:
                    waiting.append((empty, piece))
                    empty = 0
                    yield self._input(piece)
        waiting.append((empty, None))

    def _pieces(self, texts: Sequence[str]) -> Iterator[list[Piece]]:
        """Each text as far as it fits the network, and so on; nothing, if there is nothing in it."""
        for text, ids in zip(texts, self._ids(texts), strict=True):
            spans, rows = [(0, len(text))], [ids]
            if self.room is not None and len(ids) > self.room:
                spans = pieces(text, self._fits)
                rows = self._ids([text[start:end] for start, end in spans])
            some = [(*span, row) for span, row in zip(spans, rows, strict=True) if row and text.strip()]
            yield [Piece(text, *one, number == len(some)) for number, one in enumerate(some, 1)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.ids_of([self.way.prefix + text for text in texts], language=self.way.language)

    def _fits(self, text: str) -> bool:
        return self.room is None or len(self._ids([text])[0]) <= self.room

    def _input(self, piece: Piece) -> Given:
        return Given(prompt=self.prompt, source=piece.ids)

    def _text(self, tokens: Sequence[int]) -> str:
        return self.reader.text([*self.begun, *tokens])

    def _written(self, piece: Piece, result: Result) -> Written:
        spans = self._spans(piece) if self.watched else []
        first, *others = (self._one(piece, spans, result, hypothesis) for hypothesis in result.hypotheses)
        return replace(first, alternatives=tuple(others))

    def _one(self, piece: Piece, spans: Sequence[Span], result: Result, hypothesis: Hypothesis) -> Written:
        one = self.reader.written(hypothesis, result, self._text(hypothesis.tokens))
        return replace(one, alignment=self._alignment(piece, spans, hypothesis, one.text)) if self.watched else one

    def _spans(self, piece: Piece) -> list[Span]:
        """Where the tokens of a piece stand in its text. Tokens of the prefix belong to no word of it."""
        prefix, given = len(self.way.prefix), self.way.prefix + piece.text[piece.start : piece.end]
        offsets, move = self.tokenizer.encode(given, language=self.way.language).offsets, piece.start - prefix
        return [(max(start, prefix) + move, end + move) if end > prefix else (0, 0) for start, end in offsets]

    def _alignment(self, piece: Piece, spans: Sequence[Span], hypothesis: Hypothesis, text: str) -> Pairs:
        looked = hypothesis.alignment(self.watched)
        # Tokens that were cut off were not looked at.
        kept = [*spans[: looked.shape[1] - 1], spans[-1]]
        written = written_spans([*self.begun, *hypothesis.tokens], self.reader.text)[len(self.begun) :]
        return align(looked, kept, piece.text, written, text)


def _watched(network: EncoderDecoder) -> str:
    """The attention that alignments are read off: that of the last block but one, which shows them best in networks
    of the usual depth (Garg et al. 2019)."""
    layers = len(network.decoder.blocks)
    return f"decoder.blocks.{max(0, layers - 2)}.cross_attention"
