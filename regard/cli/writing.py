"""What the commands that write have in common: where texts come from, and how results go out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from regard.tasks.written import Written


class Inputs:
    """The texts of a call: one given on the command line, the lines of a file, or those of standard input."""

    def __init__(self, given: str | None) -> None:
        if given is None and sys.stdin.isatty():
            raise typer.BadParameter("give a text, a file, or - for standard input")
        self.single = given is not None and given != "-" and not Path(given).is_file()
        self.given = given
        self.total = self._count() if not self.single and given not in (None, "-") else None

    def _count(self) -> int:
        from regard.text.files import raw_lines

        return sum(1 for _ in raw_lines(str(self.given)))

    def __iter__(self) -> Iterator[str]:
        from regard.text.files import decode, lines

        if self.single:
            yield str(self.given)
        elif self.given in (None, "-"):
            for number, line in enumerate(sys.stdin.buffer, 1):
                yield decode(line, "standard input", number).rstrip("\r\n")
        else:
            for _, line in lines(str(self.given)):
                yield line


def show(results: Iterable[Written], inputs: Inputs, as_json: bool) -> None:
    """Write results to standard output, one line each, and what was cut or unfinished to standard error."""
    cut = unfinished = done = 0
    with _progress(inputs.total) as advance:
        for result in results:
            for line in _lines(result, inputs.single, as_json):
                sys.stdout.write(line + "\n")
            done += 1
            cut += result.truncated > 0
            unfinished += result.stopped == "length"
            if inputs.total is None:
                sys.stdout.flush()
            advance()
    sys.stdout.flush()
    if cut:
        sys.stderr.write(f"note: {cut} of {done} texts were too long for the network and were cut\n")
    if unfinished:
        sys.stderr.write(f"note: {unfinished} of {done} results were still unfinished at the limit of tokens\n")


def _lines(result: Written, single: bool, as_json: bool) -> Iterator[str]:
    if as_json:
        yield json.dumps(result.as_json(), ensure_ascii=False)
        return
    for one in (result, *result.alternatives):
        text = (
            one.text
            if single
            else one.text.replace("\\", "\\\\").replace("\n", "\\n")
            if "\n" in one.text
            else one.text
        )
        yield f"{one.score:.4f}\t{text}" if result.alternatives else text


def show_stream(events: Iterable[str | Written], as_json: bool) -> None:
    """Write a text as it comes; as JSON, one object for each piece and one for the whole."""
    for event in events:
        if not isinstance(event, str):
            last = json.dumps(event.as_json(), ensure_ascii=False) if as_json else ""
            sys.stdout.write(last + "\n")
        elif event:
            sys.stdout.write(json.dumps({"piece": event}, ensure_ascii=False) + "\n" if as_json else event)
        sys.stdout.flush()


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[], None]]:
    """A bar on standard error for files, where somebody is looking; a function that moves it on."""
    if total is None or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
