"""From inputs to results: texts enter a batch, are written a token at a time, and leave it when they are finished.

    waiting, by length      begun together      written together              finished
    [ . . . . . . . . ]  ->  [ the          ]    [ the cat sat on .     ]  ->  results, in the order of the inputs
                             [ it           ] -> [ a dog                ]

The step is the search's; here it is only decided who takes it together. That changes no text (`tests/promises`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from torch import nn

from regard.generation.decoding_options import Settings
from regard.generation.inputs import Given, admit, writer
from regard.generation.result import Result
from regard.generation.running_batch import Batch, Writing, Wrote
from regard.generation.sequence import Row

WINDOW = 512
"""How many inputs are read ahead, to be sorted by length."""


@dataclass(frozen=True)
class AtOnce:
    """How much is written together: this many rows, or fewer if they would hold more than so many tokens.

    As many texts again may be begun: they have one row and wait for a place.
    """

    rows: int = 16
    tokens: int | None = None
    """Of sources, prompts and all that may be written."""

    def __post_init__(self) -> None:
        if self.rows < 1 or (self.tokens is not None and self.tokens < 1):
            raise ValueError(f"at least one row and one token at once, found {self.rows} rows, {self.tokens} tokens")

    def fits(self, rows: int, tokens: int) -> bool:
        """Whether so much may be written together."""
        return rows <= self.rows and (self.tokens is None or tokens <= self.tokens)


SIXTEEN = AtOnce()


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
        batch = self.batch
        while True:
            self._read_on()
            if self.waiting and not batch.begun and self._fitting(self.waiting[-1:], batch.texts):
                count = self._fitting(reversed(self.waiting), ())
                together = self.waiting[-count:]
                del self.waiting[-count:]
                yield batch.begin(together)
            elif count := self._fitting(reversed(batch.begun), batch.texts):
                batch.enter(count)
            elif not batch.texts:
                return
            else:
                yield batch.step()

    def _read_on(self) -> None:
        """Read a window of inputs and sort it, when all are on their way and none of the window before is left.

        So no more than two windows are ever held, however long one text may take. Where only one text may be read at a
        time, it is finished before the next: whoever types it waits for it.
        """
        if (
            self.waiting
            or (self.window <= 1 and self.batch.all)
            or any(text.text.number < self.oldest for text in self.batch.all)
        ):
            return
        search = self.settings.search
        for number, given in islice(self.inputs, max(self.window, 1)):
            text = admit(self.network, number, given, self.settings.limit, self.settings.too_long)
            self.settings.check(text)
            for sample in range(search.count):
                row = Row(text.given.prompt, len(text.given.prompt), text.limit)
                key = f"{sample} {list(text.given.source or ())} {list(text.given.prompt)}"
                self.waiting.append(Writing(text, sample, search.begin(row, key)))
        if self.waiting:
            self.oldest = min(text.text.number for text in self.waiting)
        self.waiting.sort(key=lambda text: text.places - text.text.limit)  # the longest is taken first, from the end

    def _fitting(self, texts: Iterable[Writing], beside: Sequence[Writing]) -> int:
        """How many of these texts, from the first on, may be written beside the others. One alone is always let in."""
        size, count = self.settings.search.size, 0
        rows, tokens = len(beside) * size, sum(text.places for text in beside) * size
        for text in texts:
            rows, tokens = rows + size, tokens + text.places * size
            if rows > size and not self.at_once.fits(rows, tokens):
                break
            count += 1
        return count


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
    return _in_order(Run(network, inputs, settings, at_once, window))


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
    return _as_it_comes(Run(network, inputs, settings, at_once, window))


def _as_it_comes(run: Run) -> Iterator[Wrote | Result]:
    done = _Done(run.settings.search.count)
    for finished in run.steps():
        for text in [*run.batch.all, *finished]:
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
