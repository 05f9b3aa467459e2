"""Whether the first row of a table names its columns.

A row of names is short: no cell is empty or a number, and none occurs twice. That is not enough for a header, because a
first row may be short too ("yes", "ja"). So the names must be those that people give to columns, or the rows below must
differ from the first in kind: numbers below a word, or a few labels that recur below one that never does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

NAME = re.compile(r"[^\W\d_][\w .\-/#]{0,30}")
COLUMN_NAMES = frozenset(
    "text texts sentence sentence1 sentence2 sentence_1 sentence_2 content document article body review comment tweet "
    "message utterance title summary abstract highlights description caption premise hypothesis query passage question "
    "context answer answers start id idx index label labels class category target source src tgt trg input output "
    "score similarity rating stars sentiment emotion topic intent polarity gold word words token tokens tag tags "
    "original translation text1 text2 text_a text_b sentence_a sentence_b pair "
    "english german french spanish italian portuguese dutch russian chinese japanese korean arabic hindi turkish "
    "polish czech romanian swedish danish norwegian finnish greek hebrew hungarian ukrainian vietnamese indonesian "
    "deutsch français español italiano português nederlands polski türkçe svenska dansk norsk suomi čeština "
    "en de fr es it pt nl ru zh ja ko ar hi tr pl cs ro sv da no fi el he hu uk vi".split()
)
"""Words that name columns, in lower case."""
MIN_ROWS_BELOW = 5
MAX_WORDS_OF_A_NAME = 3


def looks_like_header(cells: Sequence[str], below: Sequence[Sequence[str]], label: int | None) -> bool:
    """Return whether a first row is a header, judged by the rows below it.

    `cells` and `below` hold the cells of the columns that are used. `label` is the index of the labels among them.
    """
    names = [cell.strip().casefold() for cell in cells]
    if len({*names}) < len(names) or not all(map(_is_name, names)):
        return False
    if len(names) > 1 and all(name in COLUMN_NAMES for name in names):
        return True
    if len(below) >= 2 and any(all(_is_number(row[index]) for row in below) for index in range(len(names))):
        return True
    return label is not None and _is_unlike_labels(cells, below, label)


def _is_name(cell: str) -> bool:
    return NAME.fullmatch(cell) is not None and len(cell.split()) <= MAX_WORDS_OF_A_NAME


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_unlike_labels(cells: Sequence[str], below: Sequence[Sequence[str]], label: int) -> bool:
    """Whether the labels below recur and the first one does not, and the other cells are names above longer texts."""
    labels = Counter(row[label] for row in below)
    if len(below) < MIN_ROWS_BELOW or cells[label] in labels or min(labels.values()) < 2:
        return False
    others = [index for index in range(len(cells)) if index != label]
    return all(cells[index].casefold() in COLUMN_NAMES for index in others) and all(
        sum(len(row[index].split()) > 1 for row in below) > len(below) / 2 for index in others
    )
