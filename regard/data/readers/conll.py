"""CoNLL columns: one word and its tags per line, sentences separated by empty lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.example import TaggedSentence
from regard.data.formats import Conll, Scheme
from regard.data.tag_schemes import SchemeDetector, to_bio
from regard.tokenization.text_files import DataError, read_lines

DOCSTART = "-DOCSTART-"

TaggedWord = tuple[int, str, str]
"""Line number, word, tag."""


def read_conll(files: Sequence[Path], file_format: Conll) -> Iterator[TaggedSentence]:
    """Read sentences and convert their tags to BIO. A file is read twice if its tag scheme has to be detected."""
    for file in files:
        scheme = file_format.scheme or detect_file_scheme(file, file_format)
        for sentence in iter_sentences(file, file_format):
            lines, words, tags = zip(*sentence, strict=True)
            yield TaggedSentence(words=words, tags=to_bio(tags, scheme, file, lines), file=file, line=lines[0])


def detect_file_scheme(file: Path, file_format: Conll) -> Scheme:
    """Detect the tag scheme of a file."""
    detector = SchemeDetector()
    for sentence in iter_sentences(file, file_format):
        detector.update(tag for _, _, tag in sentence)
    return detector.scheme


def iter_sentences(file: Path, file_format: Conll) -> Iterator[list[TaggedWord]]:
    """Yield the words of each sentence, with line numbers and the tags as written in the file."""
    tabs, width = _detect_columns(file, file_format)
    sentence: list[TaggedWord] = []
    for line, text in read_lines(file):
        cells = split_columns(text, tabs)
        if not any(cells):
            if sentence:
                yield sentence
            sentence = []
        elif cells[0] == DOCSTART or _is_comment(text, len(cells), width, file_format):
            continue
        else:
            sentence.append(_parse_word(cells, width, file_format, file, line))
    if sentence:
        yield sentence


def split_columns(text: str, tabs: bool) -> list[str]:
    """Split a line into columns. Only spaces and tabs separate them, because a no-break space is part of a word."""
    if tabs:
        return [cell.strip(" ") for cell in text.split("\t")]
    return [cell for cell in text.replace("\t", " ").split(" ") if cell]


def _detect_columns(file: Path, file_format: Conll) -> tuple[bool, int]:
    """Return whether tabs separate the columns, and their number, from the first line that must hold a word."""
    fallback = (True, 0)
    for _, text in read_lines(file):
        tabs = "\t" in text
        cells = split_columns(text, tabs)
        if not any(cells) or cells[0] == DOCSTART:
            continue
        if file_format.comment is None or not text.startswith(file_format.comment):
            return tabs, len(cells)
        if tabs:
            fallback = (True, len(cells))  # a comment has no tabs, so this is a word that starts like a comment
    return fallback


def _is_comment(text: str, num_cells: int, width: int, file_format: Conll) -> bool:
    return file_format.comment is not None and text.startswith(file_format.comment) and num_cells != width


def _parse_word(cells: list[str], width: int, file_format: Conll, file: Path, line: int) -> TaggedWord:
    if len(cells) != width:
        message = f"expected {width} columns as in the previous lines, found {len(cells)}: {' '.join(cells)[:60]!r}"
        raise DataError(file, line, message)
    for column, role in ((file_format.word, "word"), (file_format.tag, "tag")):
        if not -width <= column < width:
            message = f"column {column} ({role}) is out of range: the line has {width} columns (counted from 0)"
            raise DataError(file, line, f"{message}. Set Conll(word=..., tag=...)")
        if not cells[column]:
            raise DataError(file, line, f"the {role} is missing in {' | '.join(cells)[:60]!r}")
    if file_format.word % width == file_format.tag % width:
        message = f"only one column, {cells[0]!r}: expected a word and a tag separated by a space or tab"
        raise DataError(file, line, message)
    return line, cells[file_format.word], cells[file_format.tag]
