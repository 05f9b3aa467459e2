"""Texts continued, by a network with a decoder alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from regard.generation.decoding_options import Settings
from regard.generation.inputs import Given, rooms
from regard.generation.logits_processors import MinP, Rule, Temperature, TopK, TopP
from regard.generation.result import Result
from regard.generation.running_batch import Wrote
from regard.generation.scheduler import WINDOW, AtOnce, generate, stream
from regard.generation.search import Sample, Search
from regard.generation.stopping_criteria import Repeat, Stop, Text
from regard.tasks.generation_config import Habits
from regard.tasks.results import Reader, Unfolding, Written
from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.network import DecoderOnly, EncoderDecoder
from regard.transformer.two_stream import TwoStream


@dataclass(frozen=True, kw_only=True)
class Chance:
    """Draw tokens by chance, instead of taking the likeliest."""

    seed: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def rules(self) -> list[Rule]:
        """What narrows the choice."""
        rules: list[Rule] = []
        if self.temperature != 1:
            rules.append(Temperature(self.temperature))
        if self.top_k is not None:
            rules.append(TopK(self.top_k))
        if self.top_p is not None:
            rules.append(TopP(self.top_p))
        if self.min_p is not None:
            rules.append(MinP(self.min_p))
        return rules


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How to continue. What is left out is as the model's authors publish it."""

    chance: Chance | None = None
    beam: int | None = None
    n_best: int = 1
    """How many texts are written for each prompt: the best beams, or so many by chance."""
    length_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat: int | None = None
    limit: int | None = None
    """How many tokens may be written at most."""
    stop: tuple[str, ...] = ()
    """Texts that end a text when they are written; they stay in it."""
    end_loops: bool = False
    """Whether a text ends when it goes in circles: the same eight tokens or fewer, four times."""
    control: str | None = None
    """A control code by name (CTRL)."""
    rows: int = 16
    """How many rows are written at once."""

    def __post_init__(self) -> None:
        if self.chance is not None and self.beam is not None:
            raise ValueError("a text is written by chance or by beam search, not by both")


@dataclass(frozen=True)
class Prompt:
    """A prompt as the network reads it."""

    tokens: list[int]
    cut: int
    """How many tokens it lost because they did not fit."""


class Generator:
    """A network and its tokenizer, ready to continue texts."""

    def __init__(self, network: nn.Module, tokenizer: Tokenizer, habits: Habits, wish: Wish) -> None:
        if not isinstance(network, DecoderOnly | TwoStream):
            also = "; `translate` writes with this one" if isinstance(network, EncoderDecoder) else ""
            raise ValueError(f"only a network with a decoder alone continues texts{also}")
        self.network, self.tokenizer, self.wish, self.reader = network, tokenizer, wish, Reader(tokenizer)
        tokenizer.encode("", control=wish.control)  # a control code that is not known is refused now
        self.first = habits.first
        _, room = rooms(network)
        self.room = room.learnt or (room.meant if wish.limit is None else None)
        if wish.repetition_penalty is not None:
            habits = replace(habits, repetition_penalty=wish.repetition_penalty)
        if wish.no_repeat is not None:
            habits = replace(habits, no_repeat=wish.no_repeat)
        self.settings = Settings(
            search=self._search(habits),
            end=habits.end,
            rules=[*habits.rules(wish.limit), *(wish.chance.rules() if wish.chance else [])],
            stop=self._stops(),
            limit=wish.limit,
        )
        self.at_once = AtOnce(rows=max(wish.rows, self.settings.search.size))

    def _search(self, habits: Habits) -> Search:
        if self.wish.chance is not None:
            return Sample(seed=self.wish.chance.seed, count=self.wish.n_best)
        return habits.search(self.wish.beam, self.wish.n_best, self.wish.length_penalty)

    def _stops(self) -> list[Stop]:
        stops: list[Stop] = [Text(self.wish.stop, self.reader.text)] if self.wish.stop else []
        return [*stops, Repeat()] if self.wish.end_loops else stops

    def generate(self, prompts: Iterable[str], *, window: int = WINDOW) -> Iterator[Written]:
        """Continue every prompt; results come in the order of the prompts, as soon as they are ready.

        They are read `window` at a time, to be sorted by length; with 1, each is done before the next is read.
        """
        waiting: deque[Prompt] = deque()
        given = self._given(prompts, waiting)
        for result in generate(self.network, given, self.settings, at_once=self.at_once, window=window):
            yield self._written(waiting.popleft(), result)

    def stream(self, prompt: str) -> Iterator[str | Written]:
        """Continue one prompt: pieces of the text as soon as they can no longer change, then all of it."""
        read = self._prompt(prompt)
        unfolding = Unfolding(partial(self.reader.behind, read.tokens), self.reader.unsettled)
        for event in stream(self.network, [Given(prompt=read.tokens)], self.settings, at_once=self.at_once):
            if isinstance(event, Wrote):
                if event.sample == 0:
                    yield unfolding.add(event.tokens)
            else:
                result = self._written(read, event)
                yield unfolding.rest(result.text)
                yield result

    def _given(self, prompts: Iterable[str], waiting: deque[Prompt]) -> Iterator[Given]:
        for prompt in prompts:
            waiting.append(self._prompt(prompt))
            yield Given(prompt=waiting[-1].tokens)

    def _prompt(self, text: str) -> Prompt:
        """A prompt begins as the tokenizer begins a text, and does not end."""
        row = self.tokenizer.encode(text, control=self.wish.control)
        controls = self.tokenizer.controls
        if controls and (not row.ids or row.ids[0] not in controls.values()):
            known = ", ".join(sorted(controls))
            raise ValueError(f"this model has to be told what to write by a control code (--control); it knows {known}")
        words = [place for place, added in enumerate(row.special) if not added]
        if words:
            return self._fitting(row.ids[: words[-1] + 1], words[0])
        opening = row.ids[:1] if controls else [] if self.first is None else [self.first]
        if not opening:
            raise ValueError("this model has no token that begins a text, so it needs a prompt of at least one word")
        return Prompt(opening, 0)

    def _fitting(self, tokens: list[int], begin: int) -> Prompt:
        """A prompt that leaves room to write. One that is too long keeps its begin token and its latest words: so many
        that half of the room is left, or less where less is to be written."""
        if self.room is None or len(tokens) < self.room:
            return Prompt(tokens, 0)
        kept = self.room - min(self.wish.limit or self.room, self.room // 2)
        return Prompt([*tokens[:begin], *tokens[len(tokens) - kept + begin :]], len(tokens) - kept)

    def _written(self, prompt: Prompt, result: Result) -> Written:
        result = replace(result, truncated=result.truncated + prompt.cut)
        first, *others = (
            self.reader.written(one, result, self.reader.behind(prompt.tokens, one.tokens)) for one in result.hypotheses
        )
        return replace(first, alternatives=tuple(others))
