"""Read examples from files of any supported format, lazily and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from regard.data.example import EXAMPLE_TYPES, Document, Example, ImageText, Pair, Question, TaggedSentence
from regard.data.fields import FieldConverter, LabelType
from regard.data.formats import Conll, Format, JsonLines, Parallel, Squad, Table, Text
from regard.data.image_files import read_image_texts
from regard.data.line_blocks import LineBlock, read_line_blocks
from regard.data.readers.conll import parse_conll, read_conll
from regard.data.readers.jsonl import Records, parse_jsonl, parse_records
from regard.data.readers.parallel import parse_parallel
from regard.data.readers.plain import expand_folders, parse_text
from regard.data.readers.squad import parse_squad
from regard.data.readers.table import parse_table
from regard.data.record_batch import MAKERS, RecordBatch, make_examples
from regard.tokenization.text_files import DataError, format_suffix

E = TypeVar("E", bound=Example)
FilesOrRecords = Sequence[str | Path] | Records
"""Paths of files, or a sequence of records."""
OpenBlocks = Callable[[Path], Iterator[LineBlock]]
"""Opens a file as blocks of lines."""


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
        converter = _make_converter(example_type, label_type, file_format)
        return make_examples(parse_records(cast(Records, files), file_format, converter), MAKERS[example_type])
    paths = [Path(cast(str, file)) for file in files]
    if example_type is ImageText:
        return read_image_texts(paths)
    file_format = file_format or detect_format(example_type, paths)
    check_format(example_type, file_format, paths)
    if isinstance(file_format, Conll):
        return chain.from_iterable(
            read_conll(partial(_parse_file, file, file_format), file_format.scheme) for file in paths
        )
    return make_examples(parse_files(example_type, paths, file_format, label_type=label_type), MAKERS[example_type])


def parse_files(
    example_type: type[Example],
    files: Sequence[Path],
    file_format: Format,
    *,
    label_type: LabelType = LabelType.CLASS,
    open_blocks: OpenBlocks = read_line_blocks,
) -> Iterator[RecordBatch]:
    """Yield the rows and problems of files in batches: what training reads and the doctor checks.

    `open_blocks` opens a file as blocks of lines. The doctor has one that does not stop at invalid UTF-8.
    """
    match file_format:
        case Parallel():
            for source, target in zip(files[::2], files[1::2], strict=True):
                yield from parse_parallel(source, target, open_blocks(source), open_blocks(target))
        case Text():
            for file in expand_folders(files):
                yield from parse_text(file, open_blocks(file), file_format.unit)
        case Conll():
            for file in files:
                yield from parse_conll(file, open_blocks(file), file_format)
        case Squad():
            for file in files:
                yield from parse_squad(file, open_blocks(file))
        case Table():
            for file in files:
                converter = _make_converter(example_type, label_type, file_format)
                yield from parse_table(file, open_blocks(file), file_format, converter)
        case JsonLines():
            for file in files:
                converter = _make_converter(example_type, label_type, file_format)
                yield from parse_jsonl(file, open_blocks(file), file_format, converter)


def _parse_file(file: Path, file_format: Conll) -> Iterator[RecordBatch]:
    return parse_conll(file, read_line_blocks(file), file_format)


def check_format(example_type: type[Example], file_format: Format, files: Sequence[Path]) -> None:
    """Raise an error if files of a format cannot contain such examples."""
    fits = {Parallel: Pair, Text: Document, Conll: TaggedSentence, Squad: Question}
    if fits.get(type(file_format), example_type) is not example_type:
        format_name = type(file_format).__name__
        raise ValueError(f"{format_name} files cannot contain {example_type.__name__} examples")
    if isinstance(file_format, Parallel) and (not files or len(files) % 2):
        message = (
            f"parallel text needs pairs of files (source, target); found {len(files)}. A table with both columns has "
            "the extension .tsv or .csv"
        )
        raise DataError(files[0] if files else "", None, message)


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
        "cannot detect the format from the file extension: name a table .tsv or .csv, or give its separator; name JSON "
        "Lines .jsonl",
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


def _make_converter(
    example_type: type[Example], label_type: LabelType, file_format: Table | JsonLines
) -> FieldConverter:
    join = file_format.join if isinstance(file_format, JsonLines) else None
    return FieldConverter(example_type=example_type, label_type=label_type, join=join, class_names=file_format.names)
