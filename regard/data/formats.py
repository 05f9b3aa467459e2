"""What a file looks like: one typed variant for each format.

`read` tells the format by the file's ending; give one of these where the ending does not say it, or where a file has
names of its own for its columns:

    read(Labelled, ["train.tsv"], Table(columns={"text": "sentence", "label": "label"}))
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
    """It does if columns are asked for by name, or if all the fields' own names stand in it."""


class Quoting(Enum):
    """What a quotation mark means at the start of a cell."""

    CSV = "csv"
    """The cell goes on to the next lone quotation mark, over separators and line ends; two of them stand for one."""
    NONE = "none"
    """Nothing: it is text (as in GLUE's files)."""


class Cells(Enum):
    """How many cells a row may have."""

    SAME = "same"
    """As many as the first row. More of them often means a separator inside a text, which would shift what follows."""
    AT_LEAST = "at least"
    """As many as the fields need; more are not looked at (as in STS-B)."""
    REST = "rest"
    """As many as the fields need, and the last of them is all the rest of the line: a label, a blank, then the text (as
    in TREC). For columns by number, without quoting."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns of text: TSV, CSV and the like."""

    columns: Mapping[str, str | int] = field(default_factory=dict)
    """The column of each field: its name in the header, or its number, counted from 0 (-1 is the last)."""
    separator: str | None = None
    """None: a tab for .tsv, a comma for .csv."""
    quoting: Quoting | None = None
    """None: as CSV where commas separate, none where tabs do."""
    header: Header = Header.GUESS
    cells: Cells = Cells.SAME
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names for the numbers of a field: {"label": ["negative", "positive"]}."""


@dataclass(frozen=True, kw_only=True)
class JsonLines:
    """One JSON object on each line."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """The key of each field; a dot leads inside: `translation.en`, `target.0` for the first of a list."""
    join: str | None = None
    """What to put between the texts where a list of texts stands for one. None: such a list is an error."""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names for the numbers of a field: {"tags": ["O", "B-person", "I-person"]}."""


class Scheme(Enum):
    """How tags mark entities. Whatever it is, examples have BIO tags."""

    BIO = "BIO"
    """B- begins every entity, I- goes on with it (also called IOB2)."""
    IOB1 = "IOB1"
    """I- marks entities; B- only begins one that directly follows another of its type."""
    BIOES = "BIOES"
    """As BIO, with E- for the last word and S- for an entity of one word."""
    BILOU = "BILOU"
    """The same with the letters L- and U-."""
    LENIENT = "lenient"
    """BIO in which I- may also begin an entity, as the CoNLL scorer reads it: for files with faults in them."""
    PLAIN = "plain"
    """Tags that mark no entities, as parts of speech."""


@dataclass(frozen=True, kw_only=True)
class Conll:
    """One word on each line with its tags in columns, an empty line between sentences."""

    word: int = 0
    """The column of the word, counted from 0."""
    tag: int = -1
    """The column of the tag; -1 is the last."""
    scheme: Scheme | None = None
    """None: recognised from the tags of the whole file."""
    comment: str | None = "#"
    """Lines that begin with this and have not the columns of the others are no words. None: there are none such."""


@dataclass(frozen=True, kw_only=True)
class Squad:
    """Questions about paragraphs in one JSON document, as SQuAD 1.1, SQuAD 2.0 and XQuAD are published."""


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Two text files, line by line: the second has the translations of the first."""


class Unit(Enum):
    """What one document is."""

    FILE = "file"
    PARAGRAPH = "paragraph"
    """Lines up to the next empty line."""
    LINE = "line"


@dataclass(frozen=True, kw_only=True)
class Text:
    """Plain text: files, or folders with files in them, read in the order of their names."""

    unit: Unit = Unit.LINE


Format = Table | JsonLines | Conll | Squad | Parallel | Text
