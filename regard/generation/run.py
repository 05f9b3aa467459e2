"""From inputs to results: texts enter a batch, are written a token at a time, and leave it when they are finished.

    waiting, sorted by length        written together                    finished
    [ . . . . . . . . . . . . ]  ->  [ the cat sat on .        ]    ->   results, in the order of the inputs
                                     [ a dog                   ]

The step is the search's; here it is only decided who takes it together. That changes no text (`tests/promises`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import nn

from regard.generation import reading
from regard.generation.given import Admitted, Given, admit, writer
from regard.generation.reading import Reading, Writer
from regard.generation.result import Result
from regard.generation.row import Row
from regard.generation.rules import Logits
from regard.generation.search import State
from regard.generation.settings import Settings
from regard.transformer.watching import watch

WINDOW = 512
"""How many inputs are read ahead, to be sorted by length."""


@dataclass(frozen=True)
class Wrote:
    """Tokens that will not change any more."""

    number: int
    """Of which input."""
    sample: int
    """Of which of its samples."""
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class AtOnce:
    """How much is written together: this many rows, or fewer if they would hold more than so many tokens."""

    rows: int = 16
    tokens: int | None = None
    """Of sources, prompts and all that may be written."""

    def __post_init__(self) -> None:
        if self.rows < 1 or (self.tokens is not None and self.tokens < 1):
            raise ValueError(f"at least one row and one token at once, found {self.rows} rows, {self.tokens} tokens")

    def fits(self, texts: Sequence[Writing], size: int) -> bool:
        """Whether these texts may be written together, each in so many rows."""
        if len(texts) == 1:
            return True
        if self.tokens is not None and sum(text.places for text in texts) * size > self.tokens:
            return False
        return len(texts) * size <= self.rows


SIXTEEN = AtOnce()


@dataclass(eq=False)
class Writing:
    """One text that is waiting, being written, or finished."""

    text: Admitted
    sample: int
    state: State
    told: int = 0
    """How many of its tokens a stream has given out."""

    @property
    def places(self) -> int:
        """How many tokens it may come to, with all that was given."""
        return len(self.text.given.source or ()) + len(self.text.given.prompt) + self.text.limit

    def news(self) -> Wrote | None:
        """What can no longer change and was not given out yet."""
        tokens = self.state.stable()[self.told :]
        self.told += len(tokens)
        return Wrote(self.text.number, self.sample, tuple(tokens)) if tokens else None


class Batch:
    """The texts that are written together, and what the network has read of them."""

    def __init__(self, network: Writer, settings: Settings) -> None:
        self.network, self.settings = network, settings
        self.search, self.terms = settings.search, settings.terms()
        self.texts: list[Writing] = []
        self.reading: Reading | None = None

    @torch.inference_mode()
    def enter(self, texts: Sequence[Writing]) -> list[Writing]:
        """Read what is given of new texts, write their first token, and go on with them beside the others.

        Those that are finished already are returned.
        """
        sources = [text.text.given.source or () for text in texts]
        new = reading.begin(self.network, sources)
        rows = [text.state.rows[0] for text in texts]
        logits = self._read(new, [row.tokens for row in rows], rows)
        self.search.step([text.state for text in texts], logits, self.terms)
        staying = [number for number, text in enumerate(texts) if not text.state.over]
        if staying:
            if len(staying) < len(texts):
                new.keep(staying)
            if self.search.size > 1:
                new.spread(self.search.size)
            self.texts += [texts[number] for number in staying]
            if self.reading is None:
                self.reading = new
            else:
                self.reading.add(new)
        return [text for text in texts if text.state.over]

    @torch.inference_mode()
    def step(self) -> list[Writing]:
        """Write one more token of every text. Those that are finished leave, and are returned."""
        assert self.reading is not None
        rows = [row for text in self.texts for row in text.state.rows]
        logits = self._read(self.reading, [row.tokens[-1:] for row in rows], rows)
        self.search.step([text.state for text in self.texts], logits, self.terms)
        finished = [text for text in self.texts if text.state.over]
        size = self.search.size
        order = [
            number * size + parent
            for number, text in enumerate(self.texts)
            if not text.state.over
            for parent in text.state.parents
        ]
        self.texts = [text for text in self.texts if not text.state.over]
        if not order:
            self.reading = None
        elif order != list(range(len(rows))):
            self.reading.keep(order)
        return finished

    def _read(self, into: Reading, new: Sequence[Sequence[int]], rows: Sequence[Row]) -> Logits:
        if not self.settings.watch:
            return into.read(new)
        with watch(self.network, *self.settings.watch) as seen:
            logits = into.read(new)
        for number, row in enumerate(rows):
            row.seen.append({address: seen[address][number][:, -1] for address in self.settings.watch})
        return logits


class Run:
    """Inputs on their way to results."""

    def __init__(
        self, network: nn.Module, inputs: Iterable[Given], settings: Settings, at_once: AtOnce, window: int
    ) -> None:
        self.network, self.settings, self.at_once, self.window = writer(network), settings, at_once, window
        for address in settings.watch:
            if not address.startswith("decoder."):
                raise ValueError(f"only attentions of a decoder can be kept while it writes, found {address!r}")
        self.inputs = enumerate(inputs)
        self.waiting: list[Writing] = []
        self.oldest = 0
        """The first input of those that were read last."""
        self.batch = Batch(self.network, settings)

    def steps(self) -> Iterator[list[Writing]]:
        """Write a token of every text in turn, until there are no more; what each step finished."""
        while True:
            self._read_on()
            if entering := self._entering():
                yield self.batch.enter(entering)
            elif not self.batch.texts:
                return
            else:
                yield self.batch.step()

    def _read_on(self) -> None:
        """Read a window of inputs and sort it, when all are on their way and none of the window before is left.

        So no more than two windows are ever held, however long one text may take.
        """
        if self.waiting or any(text.text.number < self.oldest for text in self.batch.texts):
            return
        search = self.settings.search
        for number, given in islice(self.inputs, max(self.window, 1)):
            text = admit(self.network, number, given, self.settings.limit, self.settings.too_long)
            self.settings.check(text)
            for sample in range(search.count):
                row = Row(list(text.given.prompt), len(text.given.prompt), text.limit)
                key = f"{sample} {list(text.given.source or ())} {list(text.given.prompt)}"
                self.waiting.append(Writing(text, sample, search.begin(row, key)))
        if self.waiting:
            self.oldest = min(text.text.number for text in self.waiting)
        self.waiting.sort(key=lambda text: text.places - text.text.limit)  # the longest is taken first, from the end

    def _entering(self) -> list[Writing]:
        """Those that may enter now: as many as fit, but not one by one, for each entrance costs some copying."""
        size, texts = self.search_size, self.batch.texts
        entering: list[Writing] = []
        while self.waiting and self.at_once.fits([*texts, *entering, self.waiting[-1]], size):
            entering.append(self.waiting.pop())
        enough = max(1, self.at_once.rows // size // 4)
        if texts and self.waiting and len(entering) < enough:
            self.waiting.extend(reversed(entering))
            return []
        return entering

    @property
    def search_size(self) -> int:
        """How many rows each text needs."""
        return self.settings.search.size


def generate(
    network: nn.Module,
    inputs: Iterable[Given],
    settings: Settings,
    *,
    at_once: AtOnce = SIXTEEN,
    window: int = WINDOW,
) -> Iterator[Result]:
    """Continue every input; the results come in the order of the inputs, as soon as they are ready.

        results = generate(network, [Given(prompt=[1, 15, 7])], Settings(search=Beam(size=4), end=[2]))

    Inputs are read `window` at a time, however many there are, and written together as far as `at_once` allows.
    """
    return (event for event in _in_order(Run(network, inputs, settings, at_once, window)))


def stream(
    network: nn.Module,
    inputs: Iterable[Given],
    settings: Settings,
    *,
    at_once: AtOnce = SIXTEEN,
    window: int = 1,
) -> Iterator[Wrote | Result]:
    """The same as it comes: tokens as soon as they can no longer change, and the result when a text is finished.

    Of a beam search, that is what all live beams and all finished ones begin with.
    """
    run, done = Run(network, inputs, settings, at_once, window), _Done(settings.search.count)
    for finished in run.steps():
        for text in [*run.batch.texts, *finished]:
            if news := text.news():
                yield news
        yield from filter(None, map(done.add, finished))


def _in_order(run: Run) -> Iterator[Result]:
    done, ready, due = _Done(run.settings.search.count), dict[int, Result](), 0
    for finished in run.steps():
        ready.update((result.number, result) for result in map(done.add, finished) if result)
        while due in ready:
            yield ready.pop(due)
            due += 1


class _Done:
    """Samples that wait for the others of their input."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.samples: dict[int, list[Writing]] = {}

    def add(self, text: Writing) -> Result | None:
        """The result of the input, if this was its last sample."""
        number = text.text.number
        samples = self.samples.setdefault(number, [])
        samples.append(text)
        if len(samples) < self.count:
            return None
        del self.samples[number]
        samples.sort(key=lambda one: one.sample)
        return Result(
            number=number,
            hypotheses=tuple(found for one in samples for found in one.state.hypotheses()),
            limit=text.text.limit,
            truncated=text.text.truncated,
        )
