"""File formats: one dataclass for each.

`read` detects the format from the file extension. Pass one of these if the extension is not enough, or if the columns
of a file have other names than the fields:

    read(LabeledText, ["train.tsv"], Table(columns={"text": "sentence", "label": "label"}))

Class names, field names, enum members and enum values are part of the cache key of a corpus, so they must not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Header(Enum):
    """Whether the first line of a table names its columns."""

    FIRST_LINE = "first line"
    NONE = "none"
    GUESS = "guess"
    """It does if `columns` refers to a column by name, or if it contains the names of all required fields."""


class Quoting(Enum):
    """What a quotation mark means at the start of a cell."""

    CSV = "csv"
    """It quotes the cell, which may then contain separators and line breaks; two quotation marks stand for one."""
    NONE = "none"
    """It is ordinary text (as in GLUE's files)."""


class Cells(Enum):
    """How many cells a row may have."""

    SAME = "same"
    """As many as the first row. More cells often mean a separator inside a text, which would shift the columns."""
    AT_LEAST = "at least"
    """At least as many as the fields need; further cells are ignored (as in STS-B)."""
    REST = "rest"
    """As many as the fields need; the last one extends to the end of the line: a label, a space, then the text (as in
    TREC). Only with columns given by index and without quoting."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text: TSV, CSV and similar."""

    columns: Mapping[str, str | int] = field(default_factory=dict)
    """The column of each field: its name in the header, or its index, counted from 0 (-1 is the last)."""
    separator: str | None = None
    """None: a tab for .tsv, a comma for .csv."""
    quoting: Quoting | None = None
    """None: `NONE` if the separator is a tab, `CSV` otherwise."""
    header: Header = Header.GUESS
    cells: Cells = Cells.SAME
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Class names by label id, for each field: {"label": ["negative", "positive"]}."""


@dataclass(frozen=True, kw_only=True)
class JsonLines:
    """One JSON object on each line."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """The key of each field, or a dotted path: `translation.en`, or `target.0` for the first element of a list."""
    join: str | None = None
    """Separator that joins a list of strings to one text. None: a list of strings is an error."""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Class names by label id, for each field: {"tags": ["O", "B-person", "I-person"]}."""


class Scheme(Enum):
    """Tag scheme of a file. Tags are converted to BIO when the file is read."""

    BIO = "BIO"
    """B- starts every entity, I- continues it (also called IOB2)."""
    IOB1 = "IOB1"
    """I- marks entities; B- only starts an entity that directly follows another of the same type."""
    BIOES = "BIOES"
    """Like BIO, with E- for the last word and S- for an entity of one word."""
    BILOU = "BILOU"
    """Like BIOES, with the prefixes L- and U- in place of E- and S-."""
    LENIENT = "lenient"
    """BIO in which I- may also start an entity, as the CoNLL scorer reads it: for files with errors."""
    PLAIN = "plain"
    """Tags that do not mark entities, such as parts of speech."""


@dataclass(frozen=True, kw_only=True)
class Conll:
    """CoNLL columns: one word and its tags per line, sentences separated by empty lines."""

    word: int = 0
    """The column of the word, counted from 0."""
    tag: int = -1
    """The column of the tag; -1 is the last."""
    scheme: Scheme | None = None
    """None: detected from all tags of the file."""
    comment: str | None = "#"
    """Prefix of comment lines. A line that starts with it but has as many columns as the others is a word. None: the
    file has no comments."""


@dataclass(frozen=True, kw_only=True)
class Squad:
    """Questions about paragraphs in one JSON document, the format of SQuAD 1.1, SQuAD 2.0 and XQuAD."""


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Two text files: line i of the second is the translation of line i of the first."""


class Unit(Enum):
    """The unit of text that forms one document."""

    FILE = "file"
    PARAGRAPH = "paragraph"
    """Consecutive lines up to the next empty line."""
    LINE = "line"


@dataclass(frozen=True, kw_only=True)
class Text:
    """Plain text: files, or folders of files, which are read in the order of their names."""

    unit: Unit = Unit.LINE


Format = Table | JsonLines | Conll | Squad | Parallel | Text
