"""Plain text: a document is a file, a paragraph or a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from regard.data.formats import Unit
from regard.data.line_blocks import LineBlock
from regard.data.record_batch import RecordBatch, make_batch
from regard.tokenization.text_files import DataError

MAX_EXAMPLE_CHARACTERS = 100_000
"""Maximum length of a chunk of a file that is one document. Larger files are read in chunks, to limit memory."""


def parse_text(file: Path, blocks: Iterable[LineBlock], unit: Unit) -> Iterator[RecordBatch]:
    """Yield the documents in a file."""
    match unit:
        case Unit.LINE:
            return _lines(file, blocks)
        case Unit.PARAGRAPH:
            return _paragraphs(file, blocks)
        case Unit.FILE:
            return _chunks(file, blocks)


def expand_folders(files: Sequence[Path]) -> Iterator[Path]:
    """Replace each folder by the files below it, sorted by name. Hidden files are skipped."""
    for file in files:
        if not file.is_dir():
            yield file
            continue
        paths = [path for path in file.rglob("*") if path.is_file() and not _is_hidden(path.relative_to(file))]
        if not paths:
            raise DataError(file, None, "the folder contains no files")
        yield from sorted(paths, key=lambda path: path.relative_to(file).as_posix())


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _lines(file: Path, blocks: Iterable[LineBlock]) -> Iterator[RecordBatch]:
    for block in blocks:
        lines: Sequence[int] = range(block.first_line, block.first_line + len(block.texts))
        texts = block.texts
        if not all(map(str.strip, texts)):
            numbered = [(line, text) for line, text in zip(lines, texts, strict=True) if text.strip()]
            lines, texts = [line for line, _ in numbered], [text for _, text in numbered]
        if texts:
            yield make_batch(file, lines, {"text": texts})


def _paragraphs(file: Path, blocks: Iterable[LineBlock]) -> Iterator[RecordBatch]:
    start_line, paragraph = 0, list[str]()
    for block in blocks:
        starts, texts = list[int](), list[str]()
        for line, text in enumerate(block.texts, block.first_line):
            if text and not text.isspace():
                start_line = start_line or line
                paragraph.append(text)
            elif paragraph:
                starts.append(start_line)
                texts.append("\n".join(paragraph))
                start_line, paragraph = 0, []
        if texts:
            yield make_batch(file, starts, {"text": texts})
    if paragraph:
        yield make_batch(file, [start_line], {"text": ["\n".join(paragraph)]})


def _chunks(file: Path, blocks: Iterable[LineBlock]) -> Iterator[RecordBatch]:
    """Yield a file as one document, split into chunks at line ends if it is large."""
    start_line, size, lines, num_chunks = 1, 0, list[str](), 0
    for block in blocks:
        for line, text in enumerate(block.texts, block.first_line):
            # Empty lines stay in the chunk that they follow.
            if size >= MAX_EXAMPLE_CHARACTERS and text and not text.isspace():
                yield _chunk(file, start_line, "\n".join(lines) + "\n", num_chunks == 0, False)
                start_line, size, lines, num_chunks = line, 0, [], num_chunks + 1
            lines.append(text)
            size += len(text) + 1
    last_chunk = "\n".join(lines)
    if num_chunks or (last_chunk and not last_chunk.isspace()):
        yield _chunk(file, start_line, last_chunk, num_chunks == 0, True)


def _chunk(file: Path, line: int, text: str, starts_document: bool, ends_document: bool) -> RecordBatch:
    columns = {"text": text, "starts_document": starts_document, "ends_document": ends_document}
    return make_batch(file, [line], {name: [value] for name, value in columns.items()})
