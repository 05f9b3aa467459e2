"""CoNLL columns as sentences, whatever is wrong with some lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.formats import Conll
from regard.data.readers.conll import DOCUMENT, split
from regard.doctor import finding_kinds
from regard.doctor.tolerant_reader import Reading, Rows, Split


def read_conll(reading: Reading, form: Conll, split_: Split, file: Path) -> Iterator[Rows]:
    """Sentences: the words, their tags ("" where one is missing), and the line of each word."""
    gathered = _Sentences()
    shape: tuple[bool, int] | None = None
    for block in reading.open(file).blocks(reading.tell):
        shape = shape or _shape(block.texts, form)
        tabs, width = shape
        for line, text in enumerate(block.texts, block.first):
            cells = split(text, tabs)
            if len(cells) == width > 1 and cells[form.tag] and cells[0] != DOCUMENT:
                gathered.open.append((line, cells[form.word], cells[form.tag]))
            elif not any(cells):
                gathered.end()
            elif cells[0] == DOCUMENT or (form.comment and text.startswith(form.comment) and len(cells) != width):
                continue
            else:
                _note(reading, file, line, text, cells, width)
                gathered.open.append((line, cells[0], ""))
        yield from gathered.rows(split_, file)
    gathered.end()
    yield from gathered.rows(split_, file)


def _shape(texts: list[str], form: Conll) -> tuple[bool, int]:
    """Whether tabs separate the columns, and how many columns most lines have."""
    words = [text for text in texts if text.strip() and not (form.comment and text.startswith(form.comment))]
    tabs = sum("\t" in text for text in words) > len(words) / 2
    widths = Counter(len(split(text, tabs)) for text in words)
    return tabs, widths.most_common(1)[0][0] if widths else 0


def _note(reading: Reading, file: Path, line: int, text: str, cells: list[str], width: int) -> None:
    """Say what is wrong with a line that has not a word and its tag."""
    if width < 2:
        said = "there is a single column: expected a word and its tag, separated by a tab or blanks"
        reading.ledger.say(finding_kinds.NO_COLUMN, file, said, lines=[line], examples=[text])
    elif len(cells) > width:
        reading.ledger.note(finding_kinds.RAGGED, file, line, f"{len(cells)} columns, the others have {width}: {text}")
    else:
        reading.ledger.note(finding_kinds.NO_TAG, file, line, text)


class _Sentences:
    """Words that become sentences."""

    def __init__(self) -> None:
        self.done: list[list[tuple[int, str, str]]] = []
        self.open: list[tuple[int, str, str]] = []

    def end(self) -> None:
        if self.open:
            self.done.append(self.open)
        self.open = []

    def rows(self, split_: Split, file: Path) -> Iterator[Rows]:
        if self.done:
            fields: dict[str, list[Any]] = {
                "words": [[word for _, word, _ in sentence] for sentence in self.done],
                "tags": [[tag for _, _, tag in sentence] for sentence in self.done],
                "at": [[line for line, _, _ in sentence] for sentence in self.done],
            }
            yield Rows(split_, [sentence[0][0] for sentence in self.done], fields, {"words": file})
        self.done = []
