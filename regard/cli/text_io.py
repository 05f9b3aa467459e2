"""Input and output of the commands of tasks: reading inputs, loading the model, printing results."""

from __future__ import annotations

import enum
import gc
import json
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.until_error import UntilError
from regard.progress import Progress, on_terminal, write_detail, write_note
from regard.tasks.generated_text import GeneratedText
from regard.transformer.interface import Reads

if TYPE_CHECKING:
    from regard.cli.image_io import ImageInputs
    from regard.model import Model
    from regard.training.task import InputKind, Result


class TextInputs:
    """The inputs of a command: one on the command line, the lines of a file, or those of standard input.

    Tasks read inputs ahead, to sort them by length. At a line that cannot be read the inputs end, so that the results
    of those before it are written; then `raise_error` raises the error.
    """

    def __init__(self, argument: str | None, kind: InputKind[Any]) -> None:
        self.kind = kind
        if argument is None and sys.stdin.isatty():
            raise typer.BadParameter(f"expected a {kind.name}, a file, or - for standard input")
        self.argument = "-" if argument is None else argument
        if self.argument != "-" and os.path.isdir(self.argument):  # noqa: PTH112 (Path raises on names that are too long)
            raise typer.BadParameter(f"{argument} is a folder: expected a text, or a file with one text per line")
        self.is_single = self.argument != "-" and not os.path.exists(self.argument)  # noqa: PTH110
        if self.is_single and re.fullmatch(r"\S+\.[a-z]{2,5}", self.argument):
            write_note(f"note: there is no file {argument}: using the name itself as the text")

    @property
    def buffer_size(self) -> int:
        """Number of texts to read ahead: 1 for a person who types, so that each line is processed at once."""
        return 1 if self.argument == "-" and sys.stdin.isatty() else 512

    def num_lines(self) -> int | None:
        """Number of lines of a file; None for other inputs."""
        from regard.tokenization.text_files import read_raw_lines

        if not Path(self.argument).is_file():
            return None
        with suppress(ValueError, OSError):  # reported when the line is reached
            return sum(1 for _ in read_raw_lines(self.argument))
        return None

    def __iter__(self) -> Iterator[Any]:
        self._values = UntilError(self._parse(place, line) for place, line in self._lines())
        return self._values

    def _parse(self, place: str, line: str) -> Any:
        try:
            return self.kind.parse(line)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None

    def raise_error(self) -> None:
        """Raise the error at which the inputs ended, if there was one."""
        self._values.raise_error()

    def _lines(self) -> Iterator[tuple[str, str]]:
        """Yield the inputs as text, each with its place for error messages."""
        from regard.tokenization.text_files import decode_line, limited_lines, read_lines

        if self.is_single:
            yield "command line", self.argument
        elif self.argument == "-":
            for number, raw_line in enumerate(limited_lines(sys.stdin.buffer, "standard input"), 1):
                yield f"standard input, line {number}", decode_line(raw_line, "standard input", number).rstrip("\r\n")
        else:
            for number, line in read_lines(self.argument):
                yield f"{self.argument}, line {number}", line


class Precision(enum.StrEnum):
    """Data type of the weights."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"


PRECISION_OPTION = typer.Option(
    help="Data type of the weights; int8 is faster and checked while loading. [int8 for an int8 folder, else float32]"
)


DEVICE_OPTION = typer.Option("--device", metavar="DEVICE", help="Where to compute: cpu, cuda, cuda:1 or mps. [cpu]")


def load_model(folder: str, precision: Precision | None, device: str | None = None) -> Model:
    """Load a model with its tokenizer and generation config, compiled for inference.

    Everything that is loaded, torch included, lives until the process ends. The garbage collector is disabled meanwhile
    and ignores these objects afterwards: `regard translate` of one text takes 0.77 instead of 0.94 s
    (benchmarks/startup.py).
    """
    gc.disable()
    try:
        import regard.model
        from regard.checkpoint.model_folder import ModelFolder
        from regard.engine.quantization_error import read_quantization_record

        record = read_quantization_record(ModelFolder(folder))
        stored = record[0] if record else Precision.FLOAT32
        with _warnings_on_stderr():
            if device in (None, "cpu"):
                model = regard.model.load(folder, precision=precision or stored)
            else:  # the engine compiles for CPUs
                model = regard.model.load(folder, precision=precision, device=device or "cpu")
        if model.network.reads is not Reads.IMAGE:
            _ = model.tokenizer, model.generation_config  # report errors in these files before any text is read
    finally:
        gc.freeze()
        gc.enable()
    from regard.native.library import status

    write_detail(f"{model.report.summary()}\nnative kernels: {status()}")
    return model


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Write what Python code would get as warnings to standard error, one line each, without the line of code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        yield
    for warning in caught:
        sys.stderr.write(f"warning: {warning.message}\n")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError into a usage error (exit code 2): the model does not support the options."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def write_results(
    results: Iterable[Result], inputs: TextInputs | ImageInputs, as_json: bool, as_tsv: bool = False
) -> None:
    """Write results to standard output, one per line, and notes on truncated or unfinished ones to standard error."""
    notes, table = ResultNotes(), ResultTable() if as_tsv else None
    try:
        with _progress(inputs) as progress:
            for result in results:
                for line in table.lines(result) if table else _format_lines(result, inputs.is_single, as_json):
                    sys.stdout.write(line + "\n")
                if inputs.argument == "-":  # a person or a program may be waiting for this line
                    sys.stdout.flush()
                notes.add(result)
                if progress is not None:
                    progress.advance()
        inputs.raise_error()
    finally:
        notes.write()


class ResultTable:
    """The lines of a table of results: a header before the first one."""

    def __init__(self) -> None:
        self.columns: list[str] = []

    def lines(self, result: Result) -> Iterator[str]:
        """Yield the lines of one result."""
        from regard.tasks.prediction_files import prediction_columns, prediction_line

        if not self.columns:
            self.columns = prediction_columns(result)
            yield "\t".join(self.columns)
        yield prediction_line(result.as_json(), self.columns)


def write_streams(streams: Iterable[Iterable[str | Result]], single: bool, as_json: bool) -> None:
    """Write texts while they are generated; as JSON, one object for each delta and one for the complete result."""
    notes = ResultNotes()
    for event in (event for stream in streams for event in stream):
        if not isinstance(event, str):
            notes.add(event)
            sys.stdout.write((_to_json(event.as_json()) if as_json else "") + "\n")
        elif event:
            sys.stdout.write(_to_json({"delta": event}) + "\n" if as_json else _escape_newlines(event, single))
        sys.stdout.flush()
    notes.write()


def _format_lines(result: Result, single: bool, as_json: bool) -> Iterator[str]:
    if as_json:
        yield _to_json(result.as_json())
    else:
        yield from (_escape_newlines(line, single) for line in result.as_lines())


def _escape_newlines(text: str, single: bool) -> str:
    """Escape line breaks, so that each of several texts takes one line. A single text is unchanged."""
    return text if single else text.replace("\n", "\\n").replace("\r", "\\r")


def _to_json(values: object) -> str:
    return json.dumps(values, ensure_ascii=False)


class ResultNotes:
    """Counts of truncated, chunked and unfinished results: truncation is always reported."""

    def __init__(self) -> None:
        self.num_results = 0
        self.num_truncated = 0
        self.truncated_tokens = 0
        self.num_chunked = 0
        self.num_length_stopped = 0
        self.num_no_token = 0
        self.remarks: Counter[str] = Counter()
        """Number of results with each remark of a task."""
        self.limits: list[int] = []
        """Lowest and highest `max_new_tokens` of the results that reached it."""

    def add(self, result: Result) -> None:
        """Count a result."""
        self.num_results += 1
        self.num_truncated += result.truncated > 0
        self.truncated_tokens += result.truncated
        self.remarks.update(getattr(result, "remarks", ()))
        if not isinstance(result, GeneratedText):
            return
        self.num_chunked += result.chunks > 1
        self.num_no_token += result.stopped == "no_token"
        if result.stopped == "length":
            self.num_length_stopped += 1
            self.limits = [min([*self.limits, result.max_new_tokens]), max([*self.limits, result.max_new_tokens])]

    def write(self) -> None:
        """Write the notes to standard error."""
        if self.num_chunked:
            self._note(
                self.num_chunked,
                "longer than the network allows: processed in chunks of whole sentences where they fit",
            )
        if self.num_truncated:
            self._note(
                self.num_truncated,
                f"longer than the network allows: {self.truncated_tokens} input tokens truncated in total",
            )
        for remark, count in self.remarks.items():
            self._note(count, remark)
        if self.num_length_stopped:
            low, high = self.limits
            limit = f"{high}" if low == high else f"{low} to {high}"
            self._note(self.num_length_stopped, f"unfinished after the maximum of {limit} tokens (--max-new-tokens)")
        if self.num_no_token:
            self._note(self.num_no_token, "stopped because the logits processors masked every token")

    def _note(self, count: int, message: str) -> None:
        write_note(f"note: {count} of {self.num_results} texts: {message}")


def _progress(inputs: TextInputs | ImageInputs) -> AbstractContextManager[Progress | None]:
    """Return a progress bar for the lines of a file, unless the results go to the terminal and show the progress."""
    total = inputs.num_lines() if on_terminal() and not sys.stdout.isatty() else None
    return nullcontext() if total is None else Progress(total=total)
