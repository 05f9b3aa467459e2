"""Problems of data files: what a parser cannot read, with its kind, file and line.

The parsers of `regard.data.readers` yield rows and problems. Training raises the first problem;
the doctor collects all.
"""

from __future__ import annotations

import enum
from pathlib import Path

from regard.tokenization.text_files import DataError


class ProblemKind(enum.Enum):
    """Kind of a problem."""

    BLANK_ROW = "a row without content: it is skipped"
    HEADER = "a first row that looks like a header: it is not read as an example"
    RAGGED = "a row with an unexpected number of cells"
    UNCLOSED_QUOTE = "a quoted cell that does not end"
    MISSING_COLUMN = "a column that the whole file lacks"
    INVALID_JSON = "a line that is not a JSON object"
    INVALID_DOCUMENT = "a file that is not valid JSON"
    NOT_SQUAD = "JSON that does not have the structure of SQuAD"
    MISSING_KEY = "an object without a required key"
    WRONG_TYPE = "a value of the wrong type"
    EMPTY_LABEL = "a row without a label"
    NO_NUMBER = "a score that is not a number"
    MISSING_TAG = "a word without a tag"
    LINE_COUNTS = "parallel files with different numbers of lines"


class DataProblem(DataError):  # noqa: N818 - it is collected more often than raised
    """A problem of a data file."""

    def __init__(
        self, kind: ProblemKind, file: Path, line: int | None, message: str, *, text: str = "", position: int = 0
    ) -> None:
        super().__init__(file, line, message)
        self.kind = kind
        self.text, self.position = text, position
        """What was found there, and the character of it that is affected."""

    @property
    def fatal(self) -> bool:
        """Whether training stops at it."""
        return self.kind not in (ProblemKind.BLANK_ROW, ProblemKind.HEADER)
