"""Read examples from files of any supported format, lazily and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from regard.data.example import EXAMPLE_TYPES, Document, Example, Pair, Question, TaggedSentence
from regard.data.fields import ExampleBuilder, LabelType
from regard.data.formats import Conll, Format, JsonLines, Parallel, Squad, Table, Text
from regard.data.readers.conll import read_conll
from regard.data.readers.jsonl import Records, read_jsonl, read_records
from regard.data.readers.parallel import read_parallel
from regard.data.readers.plain import read_text
from regard.data.readers.squad import read_squad
from regard.data.readers.table import read_table
from regard.tokenization.text_files import DataError, format_suffix

E = TypeVar("E", bound=Example)
FilesOrRecords = Sequence[str | Path] | Records
"""Paths of files, or a sequence of records."""


@overload
def read(
    task_or_type: type[E],
    files: FilesOrRecords,
    file_format: Format | None = None,
    *,
    label_type: LabelType = LabelType.CLASS,
) -> Iterator[E]: ...
@overload
def read(task_or_type: str, files: FilesOrRecords, file_format: Format | None = None) -> Iterator[Example]: ...
def read(
    task_or_type: Any,
    files: FilesOrRecords,
    file_format: Format | None = None,
    *,
    label_type: LabelType = LabelType.CLASS,
) -> Iterator[Any]:
    """Iterate over the examples in these files.

        for pair in read(Pair, ["train.en.gz", "train.de.gz"]): ...
        for example in read("classify", ["train.tsv"], Table(columns={"text": "sentence", "label": "label"})): ...

    `task_or_type` is a task name or an example type. The format is detected from the file extension unless given.
    A file that cannot be parsed raises a `DataError`, which names the file and the line.
    """
    example_type, label_type = _resolve_type(task_or_type, label_type)
    if _is_records(files):
        file_format = file_format or JsonLines()
        if not isinstance(file_format, JsonLines):
            raise ValueError(f"records are read by key: pass JsonLines(keys=...), not {type(file_format).__name__}")
        return read_records(cast(Records, files), file_format, _make_builder(example_type, label_type, file_format))
    paths = [Path(cast(str, file)) for file in files]
    return _read(example_type, paths, file_format or detect_format(example_type, paths), label_type)


def _read(
    example_type: type[Example], files: list[Path], file_format: Format, label_type: LabelType
) -> Iterator[Example]:
    match file_format:
        case Parallel() if example_type is Pair:
            return read_parallel(files)
        case Text() if example_type is Document:
            return read_text(files, file_format.unit)
        case Conll() if example_type is TaggedSentence:
            return read_conll(files, file_format)
        case Squad() if example_type is Question:
            return read_squad(files)
        case Table():
            return read_table(files, file_format, _make_builder(example_type, label_type, file_format))
        case JsonLines():
            return read_jsonl(files, file_format, _make_builder(example_type, label_type, file_format))
        case _:
            format_name = type(file_format).__name__
            raise ValueError(f"{format_name} files cannot contain {example_type.__name__} examples")


def detect_format(example_type: type[Example], files: Sequence[Path]) -> Format:
    """Detect the format from the extension of the first file, for this example type."""
    if not files:
        raise ValueError("no files were given")
    suffix = format_suffix(files[0])
    if suffix in (".tsv", ".csv"):
        return Table()
    if suffix in (".jsonl", ".ndjson"):
        return JsonLines()
    if example_type is Question and suffix == ".json":
        return Squad()
    if example_type is TaggedSentence:
        return Conll()
    if example_type is Document:
        return Text()
    if example_type is Pair and len(files) > 1:
        return Parallel()
    raise DataError(
        files[0],
        None,
        f"cannot detect the format of {example_type.__name__} examples from the file extension: "
        "pass Table(...) or JsonLines(...)",
    )


def _resolve_type(task_or_type: Any, label_type: LabelType) -> tuple[type[Example], LabelType]:
    if not isinstance(task_or_type, str):
        return task_or_type, label_type
    if task_or_type not in EXAMPLE_TYPES:
        raise ValueError(f"unknown task {task_or_type!r}; the tasks are {', '.join(EXAMPLE_TYPES)}")
    return EXAMPLE_TYPES[task_or_type], LabelType.SCORE if task_or_type == "embed" else LabelType.CLASS


def _is_records(files: FilesOrRecords) -> bool:
    if isinstance(files, str | Path):
        raise ValueError(f"expected a list of files, found a single path: pass [{str(files)!r}]")
    return len(files) > 0 and not isinstance(files[0], str | Path)


def _make_builder(example_type: type[Example], label_type: LabelType, file_format: Table | JsonLines) -> ExampleBuilder:
    join = file_format.join if isinstance(file_format, JsonLines) else None
    return ExampleBuilder(example_type=example_type, label_type=label_type, join=join, class_names=file_format.names)
