"""Tolerant reader of CoNLL files: invalid lines become findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.formats import Conll
from regard.data.readers.conll import DOCSTART, split_columns
from regard.doctor import finding_kinds
from regard.doctor.tolerant_reader import RecordBatch, Split, TolerantReader


def read_conll_tolerant(reader: TolerantReader, file_format: Conll, split: Split, file: Path) -> Iterator[RecordBatch]:
    """Yield sentences: the words, their tags ("" for a missing tag), and the line of each word."""
    sentences = _SentenceBuffer()
    layout: tuple[bool, int] | None = None
    for block in reader.open(file).blocks(reader.on_bytes_read):
        layout = layout or _detect_columns(block.texts, file_format)
        tabs, width = layout
        for line, text in enumerate(block.texts, block.first_line):
            cells = split_columns(text, tabs)
            if len(cells) == width > 1 and cells[file_format.tag] and cells[0] != DOCSTART:
                sentences.current.append((line, cells[file_format.word], cells[file_format.tag]))
            elif not any(cells):
                sentences.end_sentence()
            elif cells[0] == DOCSTART or (
                file_format.comment and text.startswith(file_format.comment) and len(cells) != width
            ):
                continue
            else:
                _report_line(reader, file, line, text, cells, width)
                sentences.current.append((line, cells[0], ""))
        yield from sentences.flush(split, file)
    sentences.end_sentence()
    yield from sentences.flush(split, file)


def _detect_columns(texts: list[str], file_format: Conll) -> tuple[bool, int]:
    """Return whether tabs separate the columns, and the most frequent number of columns."""
    comment = file_format.comment
    rows = [text for text in texts if text.strip() and not (comment and text.startswith(comment))]
    tabs = sum("\t" in text for text in rows) > len(rows) / 2
    widths = Counter(len(split_columns(text, tabs)) for text in rows)
    return tabs, widths.most_common(1)[0][0] if widths else 0


def _report_line(reader: TolerantReader, file: Path, line: int, text: str, cells: list[str], width: int) -> None:
    """Add a finding for a line without a word and a tag."""
    if width < 2:
        message = "only one column: expected a word and a tag, separated by a tab or spaces"
        reader.collector.add_file(finding_kinds.NO_COLUMN, file, message, lines=[line], examples=[text])
    elif len(cells) > width:
        reader.collector.add_line(finding_kinds.RAGGED, file, line, f"{len(cells)} columns, expected {width}: {text}")
    else:
        reader.collector.add_line(finding_kinds.NO_TAG, file, line, text)


class _SentenceBuffer:
    """Collects words to sentences."""

    def __init__(self) -> None:
        self.complete: list[list[tuple[int, str, str]]] = []
        self.current: list[tuple[int, str, str]] = []

    def end_sentence(self) -> None:
        if self.current:
            self.complete.append(self.current)
        self.current = []

    def flush(self, split: Split, file: Path) -> Iterator[RecordBatch]:
        if self.complete:
            fields: dict[str, list[Any]] = {
                "words": [[word for _, word, _ in sentence] for sentence in self.complete],
                "tags": [[tag for _, _, tag in sentence] for sentence in self.complete],
                "word_lines": [[line for line, _, _ in sentence] for sentence in self.complete],
            }
            yield RecordBatch(split, [sentence[0][0] for sentence in self.complete], fields, {"words": file})
        self.complete = []
