"""Findings of the doctor, their kinds, and the collector that gathers them while files are read."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class Severity(enum.StrEnum):
    """Severity of a finding."""

    STOP = "stop"
    """Blocking: must be fixed before training."""
    WARN = "warn"
    """Training is possible, with a worse result."""
    NOTE = "note"
    """Information."""


@dataclass(frozen=True, kw_only=True)
class FindingKind:
    """A kind of problem."""

    name: str
    """Code of the kind, such as `empty-line`."""
    severity: Severity
    message: str
    """Description; `{lines}` or `{questions}` is replaced by the count ("3 lines")."""
    remedy: str
    """How to fix it."""
    warn_fraction: float = 2.0
    """From this fraction of the lines of a file a note becomes a warning."""
    stop_fraction: float = 2.0
    """From this fraction of the lines of a file the finding is blocking."""

    def severity_at(self, fraction: float) -> Severity:
        """Return the severity if this fraction of the lines of a file is affected."""
        if fraction >= self.stop_fraction:
            return Severity.STOP
        return Severity.WARN if fraction >= self.warn_fraction and self.severity is Severity.NOTE else self.severity


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem in a file, with its lines."""

    kind: str
    severity: Severity
    file: str
    lines: tuple[int, ...]
    """The first affected lines, counted from 1."""
    count: int
    """Number of affected lines."""
    message: str
    remedy: str
    examples: tuple[str, ...]


@dataclass
class _Entry:
    """One kind of problem in one file, so far."""

    count: int = 0
    last: tuple[int, int] = (0, 0)
    lines: list[int] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    message: str | None = None
    remedy: str | None = None
    severity: Severity | None = None


class FindingCollector:
    """Collects problems by kind and file. Only the first lines and examples of each are stored."""

    def __init__(self, max_lines: int = 5, max_examples: int = 3) -> None:
        self.max_lines, self.max_examples = max_lines, max_examples
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._kinds: dict[str, FindingKind] = {}

    def add_line(
        self, kind: FindingKind, file: str | Path, line: int, example: str = "", position: int = 0, row: int = 0
    ) -> None:
        """Add a line with this problem; `position` is the character of the example that is affected.

        Lines must come in ascending order. A line that is not after the last one is ignored, so a line that is found
        twice, or in a file that is read twice, counts once. `row` distinguishes several rows on one line, as in JSON.
        """
        entry = self._entry(kind, file)
        if (line, row) <= entry.last:
            return
        entry.count, entry.last = entry.count + 1, (line, row)
        if len(entry.lines) < self.max_lines:
            entry.lines.append(line)
        if len(entry.examples) < self.max_examples and example:
            entry.examples.append(f"line {line}: {excerpt(example, position)}")

    def add_file(
        self,
        kind: FindingKind,
        file: str | Path,
        message: str,
        *,
        lines: Sequence[int] = (),
        count: int | None = None,
        examples: Sequence[str] = (),
        remedy: str | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Add a problem of a whole file, or one with its own message. Replaces what was added before."""
        entry = self._entry(kind, file)
        entry.count = len(lines) if count is None else count
        entry.lines = list(lines[: self.max_lines])
        entry.examples = list(examples[: self.max_examples])
        entry.message, entry.remedy, entry.severity = message, remedy, severity

    def set_message(self, kind: FindingKind, file: str | Path, message: str, remedy: str | None = None) -> None:
        """Set a more specific message for a problem that was added line by line; `{lines}` is replaced by the count."""
        entry = self._entry(kind, file)
        entry.message, entry.remedy = message, remedy

    def extend_message(self, kind: FindingKind, file: str | Path, more: str) -> None:
        """Add to the message of a problem that has a message of its own."""
        entry = self._entry(kind, file)
        entry.message = f"{entry.message or kind.message}{more}"

    def has_blocking(self, files: Sequence[str | Path]) -> bool:
        """Whether a problem of these files is of a kind that always blocks training."""
        names = {str(file) for file in files}
        return any(file in names and self._kinds[kind].severity is Severity.STOP for kind, file in self._entries)

    def discard(self, kind: FindingKind, file: str | Path) -> None:
        """Remove a problem that was added before."""
        self._entries.pop((kind.name, str(file)), None)

    def findings(self, line_counts: Mapping[str, int]) -> list[Finding]:
        """Return all findings, highest severity first. `line_counts` has the number of lines of each file."""
        findings = [
            self._finding(name, file, entry, line_counts.get(file, 0)) for (name, file), entry in self._entries.items()
        ]
        order = list(Severity)
        return sorted(findings, key=lambda finding: order.index(finding.severity))

    def _entry(self, kind: FindingKind, file: str | Path) -> _Entry:
        self._kinds[kind.name] = kind
        return self._entries.setdefault((kind.name, str(file)), _Entry())

    def _finding(self, name: str, file: str, entry: _Entry, line_count: int) -> Finding:
        kind = self._kinds[name]
        message = kind.message if entry.message is None else entry.message
        return Finding(
            kind=name,
            severity=entry.severity or kind.severity_at(entry.count / max(line_count, 1)),
            file=file,
            lines=tuple(entry.lines),
            count=entry.count,
            message=_fill_counts(message, entry.count),
            remedy=entry.remedy or kind.remedy,
            examples=tuple(entry.examples),
        )


def _fill_counts(message: str, count: int) -> str:
    for noun in ("line", "question"):
        message = message.replace(f"{{{noun}s}}", f"{count:,} {noun}{'' if count == 1 else 's'}")
    return message


def excerpt(text: str, position: int = 0, width: int = 72) -> str:
    """Return the part of a text around a position, with unprintable characters escaped."""
    start = max(0, min(position - width // 2, len(text) - width))
    printable = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[start : start + width])
    return ("…" if start else "") + printable + ("…" if start + width < len(text) else "")
