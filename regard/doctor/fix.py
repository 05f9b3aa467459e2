"""A cleaned copy of data: rows at fault are removed, characters are mended, and all of it is logged.

    OUT/train.en, OUT/train.de …   the files, in UTF-8 with \\n line endings, decompressed
    OUT/changes.tsv                file, line, removed or changed, the kind of finding, the text

What a program cannot judge stays as it is: labels that contradict each other, the alignment of two files.
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from regard.data.formats import Conll, Format, JsonLines, Parallel, Quoting, Squad, Table, Text, Unit
from regard.data.problem import DataProblem
from regard.data.readers.plain import expand_folders
from regard.data.readers.row_splitter import RowSplitter
from regard.doctor import finding_kinds as kinds
from regard.doctor.character_checks import CONTROL, INVISIBLE, JOINER, MARKUP
from regard.doctor.doctor_report import DoctorReport
from regard.doctor.finding import FindingCollector, excerpt
from regard.doctor.split_reader import Split
from regard.doctor.text_file import TextFile
from regard.files import atomic_write
from regard.tokenization.text_files import OPENERS, format_suffix

ALL_LINES = sys.maxsize
"""`max_lines` of a report that a copy is made from: it has to name every line."""
CHANGES_FILE = "changes.tsv"
REMOVED = {
    kind.name
    for kind in (
        *(kinds.EMPTY, kinds.ONE_EMPTY, kinds.RAGGED, kinds.UNBALANCED_QUOTE, kinds.BROKEN_JSON, kinds.MISSING_KEY),
        *(kinds.WRONG_TYPE, kinds.EMPTY_LABEL, kinds.NO_NUMBER, kinds.RATIO, kinds.SWAPPED, kinds.ONE_LANGUAGE),
        *(kinds.OTHER_LANGUAGE, kinds.SCRIPT, kinds.REPLACEMENT, kinds.LONG_LINE, kinds.LONG_SUMMARY, kinds.DUPLICATE),
        *(
            kinds.EMPTY_QUESTION,
            kinds.NOT_IN_CONTEXT,
            kinds.OFFSET,
            kinds.EMPTY_ANSWER,
            kinds.NO_TAG,
            kinds.TAG_SEQUENCE,
        ),
    )
}
"""Findings whose rows are removed."""
LEAKED = "also in the validation or test data"
"""The training rows behind the findings of leakage. The validation and test data keep their rows."""
CHANGED = {
    kind.name
    for kind in (
        *(kinds.NUL, kinds.CONTROL, kinds.ZERO_WIDTH, kinds.DIRECTION, kinds.OTHER_LINE_END, kinds.LONE_RETURN),
        *(kinds.MOJIBAKE, kinds.MARKUP, kinds.WRONG_ENCODING),
    )
}
"""Findings whose characters are mended."""


@dataclass
class FixSummary:
    """What was done to make a cleaned copy."""

    folder: Path
    files: dict[Split, list[Path]] = field(default_factory=dict)
    """The files of the copy."""
    read: int = 0
    removed: int = 0
    changed: int = 0


def write_fixed(
    report: DoctorReport, files: Mapping[Split, Sequence[Path]], formats: Mapping[Split, Format], folder: Path
) -> FixSummary:
    """Write a cleaned copy of the files of a report to a new folder. The report must name all lines (`ALL_LINES`)."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not empty: choose another folder for the cleaned copy")
    for file_format in formats.values():
        if isinstance(file_format, Conll | Squad):
            raise ValueError(
                "a cleaned copy can be made of tables, JSON Lines, plain and parallel text. CoNLL columns and SQuAD "
                "files have to be corrected by hand"
            )
    found = _lines_by_file(report)
    summary = FixSummary(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / CHANGES_FILE) as temporary, temporary.open("w", encoding="utf-8") as log:
        log.write("file\tline\taction\tfinding\ttext\n")
        for split, paths in files.items():
            file_format = formats[split]
            expanded = list(expand_folders(paths)) if isinstance(file_format, Text) else list(paths)
            step = 2 if isinstance(file_format, Parallel) else 1
            for start in range(0, len(expanded), step):
                group = expanded[start : start + step]
                removed = _removed_rows(found, group, file_format)
                for path in group:
                    copy = _copy_path(folder, path)
                    _Copier(path, file_format, removed, found.get(str(path), {}), summary, log).write(copy)
                    summary.files.setdefault(split, []).append(copy)
    return summary


def _lines_by_file(report: DoctorReport) -> dict[str, dict[str, set[int]]]:
    """Return the lines of each kind of finding, by file."""
    found: dict[str, dict[str, set[int]]] = {}
    for finding in report.findings:
        found.setdefault(finding.file, {}).setdefault(finding.kind, set()).update(finding.lines)
    for file, lines in report.leaked.items():
        found.setdefault(file, {}).setdefault(LEAKED, set()).update(lines)
    return found


def _removed_rows(
    found: Mapping[str, Mapping[str, set[int]]], group: Sequence[Path], file_format: Format
) -> dict[int, str]:
    """Return the rows to remove from a file, or from both of a pair, each with the kind of finding."""
    if isinstance(file_format, Text) and file_format.unit is not Unit.LINE:
        return {}
    lines: dict[int, str] = {}
    for path in group:
        for kind, numbers in found.get(str(path), {}).items():
            if kind in REMOVED or kind == LEAKED:
                lines |= {number: kind for number in numbers if number not in lines}
    return lines


def _copy_path(folder: Path, path: Path) -> Path:
    name = path.stem if path.suffix in OPENERS else path.name
    copy = folder / name
    if copy.exists():
        raise ValueError(f"{path}: another file has the name {name} too; copy them one after the other")
    return copy


class _Copier:
    """Copies one file."""

    def __init__(
        self,
        path: Path,
        file_format: Format,
        removed: Mapping[int, str],
        found: Mapping[str, set[int]],
        summary: FixSummary,
        log: TextIO,
    ) -> None:
        self.path, self.format, self.removed, self.summary, self.log = path, file_format, removed, summary, log
        self.changed: dict[int, set[str]] = {}
        for kind in CHANGED & {*found}:
            for line in found[kind]:
                self.changed.setdefault(line, set()).add(kind)

    def write(self, copy: Path) -> None:
        """Write the lines that stay."""
        with atomic_write(copy) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            row_line = 0
            for line, text, starts_row in self._lines():
                row_line = line if starts_row else row_line
                self.summary.read += 1
                if kind := self.removed.get(row_line):
                    self.summary.removed += 1
                    self._log(line, "removed", kind, text)
                    continue
                changed = self._mend(text) if line in self.changed else text
                if changed is None:
                    self.summary.removed += 1
                    self._log(line, "removed", ", ".join(sorted(self.changed[line])), text)
                    continue
                if line in self.changed:
                    self.summary.changed += 1
                    self._log(line, "changed", ", ".join(sorted(self.changed[line])), text)
                file.write(changed + "\n")

    def _lines(self) -> Iterator[tuple[int, str, bool]]:
        """Yield number and text of each line, and whether a row starts there: a quoted cell may span several lines."""
        row_starts = self._row_starts()
        for block in TextFile(self.path, FindingCollector()).blocks(lambda _: None):
            for line, text in enumerate(block.texts, block.first_line):
                yield line, text, row_starts is None or line in row_starts

    def _row_starts(self) -> set[int] | None:
        """Return the lines on which rows start; None if all lines are rows."""
        if not isinstance(self.format, Table):
            return None
        separator = self.format.separator or ("," if format_suffix(self.path) == ".csv" else "\t")
        if (self.format.quoting or (Quoting.NONE if separator == "\t" else Quoting.CSV)) is Quoting.NONE:
            return None
        splitter, problems, starts = RowSplitter(self.path, separator, True, -1), list[DataProblem](), set[int]()
        for block in TextFile(self.path, FindingCollector()).blocks(lambda _: None):
            starts.update(splitter.split(block, problems).lines)
        starts.update(splitter.flush(problems).lines)
        return starts | {problem.line for problem in problems if problem.line}

    def _mend(self, text: str) -> str | None:
        """Return a text with its characters mended; None if that is not possible."""
        if isinstance(self.format, JsonLines):
            return json.dumps(_mend_json(json.loads(text)), ensure_ascii=False)
        return mend_text(text)

    def _log(self, line: int, action: str, kind: str, text: str) -> None:
        self.log.write(f"{self.path}\t{line}\t{action}\t{kind}\t{excerpt(text, width=200)}\n")


def _mend_json(value: Any) -> Any:
    if isinstance(value, str):
        return mend_text(value) or ""
    if isinstance(value, list):
        return [_mend_json(item) for item in value]
    return {name: _mend_json(item) for name, item in value.items()} if isinstance(value, dict) else value


LINE_ENDS = re.compile("[\r\x85\u2028\u2029]")
KEPT = {"\ufffd", *map(chr, range(0xE000, 0xF900))}
"""Characters that stand for something that is lost or private: they are not removed without a trace."""


def mend_text(text: str) -> str | None:
    """Undo a wrong conversion, convert entities, and remove markup and characters that do not belong in text."""
    text = _undo_mojibake(text)
    text = MARKUP.sub(lambda match: html.unescape(match[0]) if match[0].startswith("&") else " ", text)
    text = LINE_ENDS.sub(" ", text)
    remove: Callable[[re.Match[str]], str] = lambda match: match[0] if match[0] in KEPT else ""  # noqa: E731
    text = CONTROL.sub("", JOINER.sub("", INVISIBLE.sub(remove, text)))
    return text if text.strip() else None


CONVERTED = re.compile("[\x80-\xff€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]{2,}")
"""Characters that bytes above 127 become in cp1252 or Latin-1."""


def _undo_mojibake(text: str) -> str:
    """Decode those runs of characters as UTF-8 whose bytes are valid UTF-8."""

    def decode(match: re.Match[str]) -> str:
        encoded = b"".join(_byte_of(char) for char in match[0])
        try:
            return encoded.decode("utf-8")
        except UnicodeDecodeError:
            return match[0]

    return CONVERTED.sub(decode, text)


def _byte_of(char: str) -> bytes:
    """Return the byte of a character in cp1252, or in Latin-1 where cp1252 has none."""
    return char.encode("latin-1") if ord(char) < 256 else char.encode("cp1252")
