"""Texts continued, by a network with a decoder alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from torch import nn

from regard.generation.given import Given, TooLong
from regard.generation.result import Result
from regard.generation.rules import MinP, Rule, Temperature, TopK, TopP
from regard.generation.run import AtOnce, Wrote, generate, stream
from regard.generation.search import Sample, Search
from regard.generation.settings import Settings
from regard.generation.stop import Repeat, Stop, Text
from regard.tasks.habits import Habits
from regard.tasks.written import Unfolding, Written, batched, written
from regard.text.tokenizer import Tokenizer
from regard.transformer.network import DecoderOnly
from regard.transformer.two_stream import TwoStream

READ_AHEAD = 256


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
    repeat: bool = True
    """Whether a text ends when it goes in circles: the same eight tokens or fewer, four times."""
    control: str | None = None
    """A control code by name (CTRL)."""
    rows: int = 16

    def __post_init__(self) -> None:
        if self.chance is not None and self.beam is not None:
            raise ValueError("a text is written by chance or by beam search, not by both")
        if self.n_best < 1:
            raise ValueError(f"the number of results must be 1 or more, found {self.n_best}")


class Generator:
    """A network and its tokenizer, ready to continue texts."""

    def __init__(self, network: nn.Module, tokenizer: Tokenizer, habits: Habits, wish: Wish) -> None:
        if not isinstance(network, DecoderOnly | TwoStream):
            raise ValueError("only a network with a decoder alone continues texts; try `translate` with this one")
        self.network, self.tokenizer, self.wish = network, tokenizer, wish
        if tokenizer.controls and wish.control is None:
            known = ", ".join(sorted(tokenizer.controls))
            raise ValueError(f"this model has to be told what to write by a control code; it knows {known}")
        self.begin = tokenizer.special.begin if tokenizer.special.begin is not None else habits.start
        if wish.repetition_penalty is not None:
            habits = replace(habits, repetition_penalty=wish.repetition_penalty)
        if wish.no_repeat is not None:
            habits = replace(habits, no_repeat=wish.no_repeat)
        self.settings = Settings(
            search=self._search(habits),
            end=habits.end,
            rules=[*habits.rules(), *(wish.chance.rules() if wish.chance else [])],
            stop=self._stops(),
            limit=wish.limit,
            too_long=TooLong.CUT,
        )
        self.at_once = AtOnce(rows=max(wish.rows, self.settings.search.size))

    def _search(self, habits: Habits) -> Search:
        if self.wish.chance is not None:
            return Sample(seed=self.wish.chance.seed, count=self.wish.n_best)
        return habits.search(self.wish.beam, self.wish.n_best, self.wish.length_penalty)

    def _stops(self) -> list[Stop]:
        stops: list[Stop] = [Text(self.wish.stop, self.tokenizer.decode)] if self.wish.stop else []
        return [*stops, Repeat()] if self.wish.repeat else stops

    def generate(self, prompts: Iterable[str]) -> Iterator[Written]:
        """Continue every prompt; results come in the order of the prompts, as soon as they are ready."""
        waiting: deque[list[int]] = deque()
        for result in generate(self.network, self._given(prompts, waiting), self.settings, at_once=self.at_once):
            yield self._written(waiting.popleft(), result)

    def stream(self, prompt: str) -> Iterator[str | Written]:
        """Continue one prompt: pieces of the text as soon as they can no longer change, then all of it."""
        waiting: deque[list[int]] = deque()
        unfolding: Unfolding | None = None
        for event in stream(self.network, self._given([prompt], waiting), self.settings):
            if unfolding is None:
                unfolding = Unfolding(self.tokenizer.decode)
                unfolding.add(waiting[0])
            if isinstance(event, Wrote):
                if event.sample == 0:
                    yield unfolding.add(event.tokens)
            else:
                result = self._written(waiting[0], event)
                yield unfolding.rest(self.tokenizer.decode([*waiting[0], *event.tokens]))
                yield result

    def _given(self, prompts: Iterable[str], waiting: deque[list[int]]) -> Iterator[Given]:
        for batch in batched(prompts, READ_AHEAD):
            for prompt in batch:
                tokens = self._tokens(prompt)
                waiting.append(tokens)
                yield Given(prompt=tokens)

    def _tokens(self, prompt: str) -> list[int]:
        """A prompt begins as the tokenizer begins a text, and does not end."""
        row = self.tokenizer.encode(prompt, control=self.wish.control)
        last = len(row.ids)
        while (
            last and row.special[last - 1] and row.ids[last - 1] not in (self.begin, *self.tokenizer.controls.values())
        ):
            last -= 1
        tokens = row.ids[:last]
        if not tokens and self.begin is None:
            raise ValueError("this model has no token that begins a text, so it needs a prompt of at least one word")
        return tokens or [int(self.begin)] if self.begin is not None else tokens

    def _written(self, prompt: list[int], result: Result) -> Written:
        before = len(self.tokenizer.decode(prompt))
        first, *others = (
            replace(
                written(one, self.tokenizer, result.truncated),
                text=self.tokenizer.decode([*prompt, *one.tokens])[before:],
            )
            for one in result.hypotheses
        )
        return replace(first, alternatives=tuple(others))
