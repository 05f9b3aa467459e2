"""The texts that are written together at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from regard.generation import decoder_state
from regard.generation.decoder_state import Reading, Writer
from regard.generation.decoding_options import Settings
from regard.generation.inputs import Admitted
from regard.generation.logits_processors import Logits
from regard.generation.search import State
from regard.generation.sequence import Row
from regard.transformer.capture import watch


@dataclass(frozen=True)
class Wrote:
    """Tokens that will not change any more."""

    number: int
    """Of which input."""
    sample: int
    """Of which of its samples."""
    tokens: tuple[int, ...]


@dataclass(eq=False)
class Writing:
    """One text that is waiting, being written, or finished."""

    text: Admitted
    sample: int
    state: State
    told: int = 0
    """How many of its tokens a stream has given out."""

    @cached_property
    def places(self) -> int:
        """How many tokens it may come to, with all that was given."""
        return len(self.text.given.source or ()) + len(self.text.given.prompt) + self.text.limit

    def news(self) -> Wrote | None:
        """What can no longer change and was not given out yet."""
        tokens = self.state.stable()[self.told :]
        self.told += len(tokens)
        return Wrote(self.text.number, self.sample, tuple(tokens)) if tokens else None


class Batch:
    """The texts that are written together, and what the network has read of them.

    Beside them wait texts that were begun ahead, many in one go, so that each can enter as soon as another is finished.
    """

    def __init__(self, network: Writer, settings: Settings) -> None:
        self.network, self.settings = network, settings
        self.search, self.terms = settings.search, settings.terms()
        self.texts: list[Writing] = []
        self.reading: Reading | None = None
        self.begun: list[Writing] = []
        self.ahead: Reading | None = None

    @property
    def all(self) -> list[Writing]:
        """Those that are written, and those that are begun."""
        return self.texts + self.begun

    @torch.inference_mode()
    def begin(self, texts: Sequence[Writing]) -> list[Writing]:
        """Read what is given of new texts and write their first token. Those that are finished then are returned."""
        assert not self.begun
        new = decoder_state.begin(self.network, [text.text.given.source or () for text in texts])
        rows = [text.state.rows[0] for text in texts]
        logits = self._read(new, [row.tokens for row in rows], rows)
        self.search.step([text.state for text in texts], logits, self.terms)
        staying = [number for number, text in enumerate(texts) if not text.state.over]
        if staying and len(staying) < len(texts):
            new.keep(staying)
        self.begun, self.ahead = [texts[number] for number in staying], new if staying else None
        return [text for text in texts if text.state.over]

    @torch.inference_mode()
    def enter(self, count: int) -> None:
        """Go on with so many of the texts that were begun, beside the others."""
        assert self.ahead is not None
        waiting = len(self.begun) - count
        entering, size = range(waiting, len(self.begun)), self.search.size
        if self.reading is not None:
            self.reading.add(self.ahead, entering, size)
        else:
            self.reading = self.ahead.take(entering) if waiting else self.ahead
            if size > 1:
                self.reading.spread(size)
        if waiting:
            self.ahead.keep(range(waiting))
        else:
            self.ahead = None
        self.texts += self.begun[waiting:]
        del self.begun[waiting:]

    @torch.inference_mode()
    def step(self) -> list[Writing]:
        """Write one more token of every text. Those that are finished leave, and are returned."""
        assert self.reading is not None
        rows = [row for text in self.texts for row in text.state.rows]
        logits = self._read(self.reading, [(row.last,) for row in rows], rows)
        self.search.step([text.state for text in self.texts], logits, self.terms)
        finished = [text for text in self.texts if text.state.over]
        staying, size = self._staying(), self.search.size
        order = [number * size + parent for number in staying for parent in self.texts[number].state.parents]
        self.texts = [self.texts[number] for number in staying]
        if not order:
            self.reading = None
        elif order != list(range(len(rows))):
            self.reading.keep(order)
        return finished

    def _staying(self) -> list[int]:
        """The texts that go on, the last of them in the places of those that leave, so that few have to move."""
        staying = [number for number, text in enumerate(self.texts) if not text.state.over]
        movers = [number for number in staying if number >= len(staying)]
        return [movers.pop() if self.texts[place].state.over else place for place in range(len(staying))]

    def _read(self, into: Reading, new: Sequence[Sequence[int]], rows: Sequence[Row]) -> Logits:
        if not self.settings.watch:
            return into.read(new)
        with watch(self.network, *self.settings.watch) as seen:
            logits = into.read(new)
        for number, row in enumerate(rows):
            row.seen += ({address: seen[address][number][:, -1] for address in self.settings.watch},)
        return logits
