"""Plain text: a document is a file, a paragraph or a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.example import Plain
from regard.data.formats import Unit
from regard.tokenization.text_files import DataError, lines

PIECE = 100_000
"""Characters after which a file that is one document is handed on in a piece, so that files may exceed memory."""


def read_text(files: Sequence[Path], unit: Unit) -> Iterator[Plain]:
    """Documents of these files; a folder stands for all files below it, sorted by name."""
    for file in expand(files):
        match unit:
            case Unit.LINE:
                yield from (
                    Plain(text=text, file=file, line=line) for line, text in lines(file) if text and not text.isspace()
                )
            case Unit.PARAGRAPH:
                yield from _paragraphs(file)
            case Unit.FILE:
                yield from _pieces(file)


def expand(files: Sequence[Path]) -> Iterator[Path]:
    """Files, with each folder replaced by the files below it in the order of their names. Hidden ones are left out."""
    for file in files:
        if not file.is_dir():
            yield file
            continue
        found = [path for path in file.rglob("*") if path.is_file() and not _hidden(path.relative_to(file))]
        if not found:
            raise DataError(file, None, "there is no file in this folder")
        yield from sorted(found, key=lambda path: path.relative_to(file).as_posix())


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _paragraphs(file: Path) -> Iterator[Plain]:
    begun, texts = 0, list[str]()
    for line, text in lines(file):
        if text and not text.isspace():
            begun = begun or line
            texts.append(text)
        elif texts:
            yield Plain(text="\n".join(texts), file=file, line=begun)
            begun, texts = 0, []
    if texts:
        yield Plain(text="\n".join(texts), file=file, line=begun)


def _pieces(file: Path) -> Iterator[Plain]:
    """A file whole, or in pieces that end with a line."""
    begun, size, texts, pieces = 1, 0, list[str](), 0
    for line, text in lines(file):
        if size >= PIECE and text and not text.isspace():  # empty lines stay with what they follow
            yield Plain(text="\n".join(texts) + "\n", file=file, line=begun, begins=not pieces, ends=False)
            begun, size, texts, pieces = line, 0, [], pieces + 1
        texts.append(text)
        size += len(text) + 1
    whole = "\n".join(texts)
    if pieces or (whole and not whole.isspace()):
        yield Plain(text=whole, file=file, line=begun, begins=not pieces)
