"""CoNLL columns: a word on each line with its tags beside it, an empty line between sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.example import Tagged
from regard.data.formats import Conll, Scheme
from regard.data.tag_schemes import Recogniser, to_bio
from regard.tokenization.text_files import DataError, lines

DOCUMENT = "-DOCSTART-"

Word = tuple[int, str, str]
"""Line, word, tag."""


def read_conll(files: Sequence[Path], form: Conll) -> Iterator[Tagged]:
    """Sentences with their tags in BIO. A file is read twice where its scheme has to be recognised."""
    for file in files:
        scheme = form.scheme or scheme_of(file, form)
        for sentence in sentences(file, form):
            at, words, tags = zip(*sentence, strict=True)
            yield Tagged(words=words, tags=to_bio(tags, scheme, file, at), file=file, line=at[0])


def scheme_of(file: Path, form: Conll) -> Scheme:
    """The scheme of a file's tags."""
    recogniser = Recogniser()
    for sentence in sentences(file, form):
        recogniser.see(tag for _, _, tag in sentence)
    return recogniser.scheme


def sentences(file: Path, form: Conll) -> Iterator[list[Word]]:
    """The words of each sentence, with their lines and their tags as they stand in the file."""
    tabs, width = _shape(file, form)
    sentence: list[Word] = []
    for line, text in lines(file):
        cells = split(text, tabs)
        if not any(cells):
            if sentence:
                yield sentence
            sentence = []
        elif cells[0] == DOCUMENT or _is_comment(text, len(cells), width, form):
            continue
        else:
            sentence.append(_word(cells, width, form, file, line))
    if sentence:
        yield sentence


def split(text: str, tabs: bool) -> list[str]:
    """The columns of a line. A no-break space is part of a word, so only blanks and tabs separate."""
    if tabs:
        return [cell.strip(" ") for cell in text.split("\t")]
    return [cell for cell in text.replace("\t", " ").split(" ") if cell]


def _shape(file: Path, form: Conll) -> tuple[bool, int]:
    """Whether tabs separate the columns, and how many there are: told by the first line that must be a word."""
    fallback = (True, 0)
    for _, text in lines(file):
        tabs = "\t" in text
        cells = split(text, tabs)
        if not any(cells) or cells[0] == DOCUMENT:
            continue
        if form.comment is None or not text.startswith(form.comment):
            return tabs, len(cells)
        if tabs:
            fallback = (True, len(cells))  # a comment has no tabs: this is a word that begins like one
    return fallback


def _is_comment(text: str, cells: int, width: int, form: Conll) -> bool:
    return form.comment is not None and text.startswith(form.comment) and cells != width


def _word(cells: list[str], width: int, form: Conll, file: Path, line: int) -> Word:
    if len(cells) != width:
        raise DataError(
            file, line, f"found {len(cells)} columns, expected {width} as in the lines before: {' '.join(cells)[:60]!r}"
        )
    for column, what in ((form.word, "word"), (form.tag, "tag")):
        if not -width <= column < width:
            said = f"there is no column {column} for the {what}: the line has {width} (counted from 0)"
            raise DataError(file, line, f"{said}. Give Conll(word=..., tag=...)")
        if not cells[column]:
            raise DataError(file, line, f"the {what} is missing in {' | '.join(cells)[:60]!r}")
    if form.word % width == form.tag % width:
        raise DataError(file, line, f"a single column, {cells[0]!r}: expected a word and its tag, separated by a blank")
    return line, cells[form.word], cells[form.tag]
