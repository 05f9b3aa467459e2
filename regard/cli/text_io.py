"""What the commands that write have in common: where texts come from, and how results go out."""

from __future__ import annotations

import enum
import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from regard.model import Model
    from regard.tasks.results import Written


class Inputs:
    """The texts of a call: one given on the command line, the lines of a file, or those of standard input."""

    def __init__(self, given: str | None) -> None:
        if given is None and sys.stdin.isatty():
            raise typer.BadParameter("give a text, a file, or - for standard input")
        self.given = "-" if given is None else given
        if self.given != "-" and os.path.isdir(self.given):  # noqa: PTH112 (Path minds names that are too long for a file)
            raise typer.BadParameter(f"{given} is a folder: give a text, or a file with one text a line")
        self.single = self.given != "-" and not os.path.exists(self.given)  # noqa: PTH110
        if self.single and re.fullmatch(r"\S+\.[a-z]{2,5}", self.given):
            sys.stderr.write(f"note: there is no file {given}, so it is taken for the text\n")

    @property
    def window(self) -> int:
        """How many texts may be read ahead: of what somebody is typing, none."""
        return 1 if self.given == "-" and sys.stdin.isatty() else 512

    def total(self) -> int | None:
        """The number of lines, where it can be known."""
        from regard.tokenization.text_files import raw_lines

        return sum(1 for _ in raw_lines(self.given)) if Path(self.given).is_file() else None

    def __iter__(self) -> Iterator[str]:
        from regard.tokenization.text_files import decode, lines

        if self.single:
            yield self.given
        elif self.given == "-":
            for number, line in enumerate(sys.stdin.buffer, 1):
                yield decode(line, "standard input", number).rstrip("\r\n")
        else:
            for _, line in lines(self.given):
                yield line


class Wanted(enum.StrEnum):
    """What the weights are kept in."""

    FP32 = "fp32"
    INT8 = "int8"


PRECISION = typer.Option(help="int8 is faster, and a little less exact. [as the folder was made for, or fp32]")


def opened(folder: str, precision: Wanted | None) -> Model:
    """The model, prepared, with all that writing needs of its folder.

    All of it stays to the end, torch included, so nobody need look for garbage among it: that takes a tenth of the time
    that starting takes.
    """
    gc.disable()
    try:
        import regard.model
        from regard.engine import quantization_error

        made_for = quantization_error.read(Path(folder))
        model = regard.model.load(folder, precision=precision or (made_for[0] if made_for else Wanted.FP32))
        _ = model.tokenizer, model.habits  # what is wrong with these files is said now
    finally:
        gc.freeze()
        gc.enable()
    return model


@contextmanager
def asking() -> Iterator[None]:
    """What the model cannot be asked for is a wrong call, not work that failed."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def show(results: Iterable[Written], inputs: Inputs, as_json: bool) -> None:
    """Write results to standard output, one line each, and what was cut or unfinished to standard error."""
    remarks = Remarks()
    with _progress(inputs) as advance:
        for result in results:
            for line in _lines(result, inputs.single, as_json):
                sys.stdout.write(line + "\n")
            if inputs.given == "-":  # somebody may be waiting for it
                sys.stdout.flush()
            remarks.add(result)
            advance()
    remarks.tell()


def show_streams(streams: Iterable[Iterable[str | Written]], single: bool, as_json: bool) -> None:
    """Write texts as they come; as JSON, one object for each piece and one for the whole."""
    remarks = Remarks()
    for event in (event for stream in streams for event in stream):
        if not isinstance(event, str):
            remarks.add(event)
            sys.stdout.write((_json(event.as_json()) if as_json else "") + "\n")
        elif event:
            sys.stdout.write(_json({"piece": event}) + "\n" if as_json else _on_a_line(event, single))
        sys.stdout.flush()
    remarks.tell()


def _lines(result: Written, single: bool, as_json: bool) -> Iterator[str]:
    if as_json:
        yield _json(result.as_json())
        return
    for one in (result, *result.alternatives):
        text = _on_a_line(one.text, single)
        yield f"{one.score:.4f}\t{text}" if result.alternatives else text


def _on_a_line(text: str, single: bool) -> str:
    """A text that shares its place with others has no line breaks; a text by itself is as it is."""
    return text if single else text.replace("\n", "\\n").replace("\r", "\\r")


def _json(values: object) -> str:
    return json.dumps(values, ensure_ascii=False)


class Remarks:
    """What has to be said of some results: nothing is cut silently."""

    def __init__(self) -> None:
        self.done = self.cut = self.lost = self.split = self.unfinished = self.stuck = 0
        self.limits: list[int] = []

    def add(self, result: Written) -> None:
        """Look at one more."""
        self.done += 1
        self.cut += result.truncated > 0
        self.lost += result.truncated
        self.split += result.pieces > 1
        self.stuck += result.stopped == "stuck"
        if result.stopped == "length":
            self.unfinished += 1
            self.limits = [min([*self.limits, result.limit]), max([*self.limits, result.limit])]

    def tell(self) -> None:
        """Say it on standard error."""
        if self.split:
            self._note(self.split, "too long for the network in one: written in pieces of whole sentences")
        if self.cut:
            self._note(self.cut, f"too long for the network: cut by {self.lost} tokens of the input in all")
        if self.unfinished:
            low, high = self.limits
            limit = f"the limit of {high}" if low == high else f"their limits of {low} to {high}"
            self._note(self.unfinished, f"still unfinished at {limit} tokens (--limit)")
        if self.stuck:
            self._note(self.stuck, "ended because the rules left no token to write")

    def _note(self, count: int, said: str) -> None:
        sys.stderr.write(f"note: {count} of {self.done} texts: {said}\n")


@contextmanager
def _progress(inputs: Inputs) -> Iterator[Callable[[], None]]:
    """A bar on standard error for files, where somebody is looking; a function that moves it on."""
    total = inputs.total() if sys.stderr.isatty() else None
    if total is None:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
