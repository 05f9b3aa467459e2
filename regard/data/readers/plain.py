"""Plain text: a document is a file, a paragraph or a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.example import Document
from regard.data.formats import Unit
from regard.tokenization.text_files import DataError, read_lines

MAX_EXAMPLE_CHARACTERS = 100_000
"""Maximum length of a chunk of a file that is one document. Larger files are read in chunks, to limit memory."""


def read_text(files: Sequence[Path], unit: Unit) -> Iterator[Document]:
    """Read the documents in these files. A folder stands for all files below it, sorted by name."""
    for file in expand_folders(files):
        match unit:
            case Unit.LINE:
                yield from (
                    Document(text=text, file=file, line=line)
                    for line, text in read_lines(file)
                    if text and not text.isspace()
                )
            case Unit.PARAGRAPH:
                yield from _paragraphs(file)
            case Unit.FILE:
                yield from _chunks(file)


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


def _paragraphs(file: Path) -> Iterator[Document]:
    start_line, lines = 0, list[str]()
    for line, text in read_lines(file):
        if text and not text.isspace():
            start_line = start_line or line
            lines.append(text)
        elif lines:
            yield Document(text="\n".join(lines), file=file, line=start_line)
            start_line, lines = 0, []
    if lines:
        yield Document(text="\n".join(lines), file=file, line=start_line)


def _chunks(file: Path) -> Iterator[Document]:
    """Yield a file as one document, split into chunks at line ends if it is large."""
    start_line, size, lines, num_chunks = 1, 0, list[str](), 0
    for line, text in read_lines(file):
        if size >= MAX_EXAMPLE_CHARACTERS and text and not text.isspace():  # empty lines stay in the chunk they follow
            yield Document(
                text="\n".join(lines) + "\n",
                file=file,
                line=start_line,
                starts_document=not num_chunks,
                ends_document=False,
            )
            start_line, size, lines, num_chunks = line, 0, [], num_chunks + 1
        lines.append(text)
        size += len(text) + 1
    last_chunk = "\n".join(lines)
    if num_chunks or (last_chunk and not last_chunk.isspace()):
        yield Document(text=last_chunk, file=file, line=start_line, starts_document=not num_chunks)
