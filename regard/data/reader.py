"""From files to examples: `read` opens whatever format it is given, lazily and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from regard.data.example import TASKS, Example, Pair, Plain, Question, Tagged
from regard.data.fields import Builder, Label
from regard.data.formats import Conll, Format, JsonLines, Parallel, Squad, Table, Text
from regard.data.readers.conll import read_conll
from regard.data.readers.jsonl import Records, read_jsonl, read_records
from regard.data.readers.parallel import read_parallel
from regard.data.readers.plain import read_text
from regard.data.readers.squad import read_squad
from regard.data.readers.table import read_table
from regard.tokenization.text_files import DataError, kind_of

E = TypeVar("E", bound=Example)
Files = Sequence[str | Path] | Records
"""Files, or the records themselves."""


@overload
def read(what: type[E], files: Files, form: Format | None = None, *, label: Label = Label.NAME) -> Iterator[E]: ...
@overload
def read(what: str, files: Files, form: Format | None = None) -> Iterator[Example]: ...
def read(what: Any, files: Files, form: Format | None = None, *, label: Label = Label.NAME) -> Iterator[Any]:
    """The examples in these files, one at a time.

        for pair in read(Pair, ["train.en.gz", "train.de.gz"]): ...
        for example in read("classify", ["train.tsv"], Table(columns={"text": "sentence", "label": "label"})): ...

    `what` is the kind of example, or a task's name. The format is told by the files' endings unless it is given.
    A file that cannot be read as that is a `DataError`, which names the file and the line.
    """
    kind, label = _kind(what, label)
    if _are_records(files):
        form = form or JsonLines()
        if not isinstance(form, JsonLines):
            raise ValueError(f"records are read by their keys: give JsonLines(keys=...), not {type(form).__name__}")
        return read_records(cast(Records, files), form, _builder(kind, label, form))
    paths = [Path(cast(str, file)) for file in files]
    return _read(kind, paths, form or format_of(kind, paths), label)


def _read(kind: type[Example], files: list[Path], form: Format, label: Label) -> Iterator[Example]:
    match form:
        case Parallel() if kind is Pair:
            return read_parallel(files)
        case Text() if kind is Plain:
            return read_text(files, form.unit)
        case Conll() if kind is Tagged:
            return read_conll(files, form)
        case Squad() if kind is Question:
            return read_squad(files)
        case Table():
            return read_table(files, form, _builder(kind, label, form))
        case JsonLines():
            return read_jsonl(files, form, _builder(kind, label, form))
        case _:
            raise ValueError(f"{type(form).__name__} files hold no {kind.__name__} examples")


def format_of(kind: type[Example], files: Sequence[Path]) -> Format:
    """The format that the ending of the first file tells, for this kind of example."""
    if not files:
        raise ValueError("no files were given")
    ending = kind_of(files[0])
    if ending in (".tsv", ".csv"):
        return Table()
    if ending in (".jsonl", ".ndjson"):
        return JsonLines()
    if kind is Question and ending == ".json":
        return Squad()
    if kind is Tagged:
        return Conll()
    if kind is Plain:
        return Text()
    if kind is Pair and len(files) > 1:
        return Parallel()
    raise DataError(
        files[0],
        None,
        f"its ending does not tell how {kind.__name__} examples stand in it: give Table(...), JsonLines(...)",
    )


def _kind(what: Any, label: Label) -> tuple[type[Example], Label]:
    if not isinstance(what, str):
        return what, label
    if what not in TASKS:
        raise ValueError(f"there is no task {what!r}: the tasks are {', '.join(TASKS)}")
    return TASKS[what], Label.NUMBER if what == "embed" else Label.NAME


def _are_records(files: Files) -> bool:
    if isinstance(files, str | Path):
        raise ValueError(f"expected a list of files, found one: give [{str(files)!r}]")
    return len(files) > 0 and not isinstance(files[0], str | Path)


def _builder(kind: type[Example], label: Label, form: Table | JsonLines) -> Builder:
    join = form.join if isinstance(form, JsonLines) else None
    return Builder(kind=kind, label=label, join=join, names=form.names)
