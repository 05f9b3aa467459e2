"""What the doctor says: kinds of fault, and the ledger in which they are gathered while files are read."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class Severity(enum.StrEnum):
    """How much a finding matters."""

    STOP = "stop"
    """Training should not go ahead."""
    WARN = "warn"
    """Training can go ahead, and will be worse for it."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of fault."""

    name: str
    """How machines know it: `empty-line`."""
    severity: Severity
    said: str
    """What it is, in words; `{lines}` or `{questions}` stands for the number of those that have it ("3 lines")."""
    remedy: str
    """What to do about it."""
    warn_at: float = 2.0
    """The share of a file's lines from which on it is a warning, whatever its severity is otherwise."""
    stop_at: float = 2.0
    """The share of a file's lines from which on training should not go ahead."""

    def weigh(self, share: float) -> Severity:
        """How much it matters when this share of a file has it."""
        if share >= self.stop_at:
            return Severity.STOP
        return Severity.WARN if share >= self.warn_at and self.severity is Severity.NOTE else self.severity


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong with a file, and where."""

    kind: str
    severity: Severity
    file: str
    lines: tuple[int, ...]
    """The first lines that have it, from 1."""
    count: int
    """How many lines have it."""
    said: str
    remedy: str
    examples: tuple[str, ...]


@dataclass
class _Entry:
    """One kind of fault in one file, so far."""

    count: int = 0
    last: tuple[int, int] = (0, 0)
    lines: list[int] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    said: str | None = None
    remedy: str | None = None
    severity: Severity | None = None


class Ledger:
    """Faults as they are met, added up by kind and file. Only the first few lines of each are kept."""

    def __init__(self, shown: int = 5, examples: int = 3) -> None:
        self.shown, self.examples = shown, examples
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._kinds: dict[str, Kind] = {}

    def note(self, kind: Kind, file: str | Path, line: int, example: str = "", at: int = 0, row: int = 0) -> None:
        """A line has this fault, at this character.

        Lines come in order, so one that has gone by (found twice, or in a file that was given twice) counts once.
        Where one line has several rows, as a JSON document may, `row` tells them apart.
        """
        entry = self._entry(kind, file)
        if (line, row) <= entry.last:
            return
        entry.count, entry.last = entry.count + 1, (line, row)
        if len(entry.lines) < self.shown:
            entry.lines.append(line)
        if len(entry.examples) < self.examples and example:
            entry.examples.append(f"line {line}: {clip(example, at)}")

    def say(
        self,
        kind: Kind,
        file: str | Path,
        said: str,
        *,
        lines: Sequence[int] = (),
        count: int | None = None,
        examples: Sequence[str] = (),
        remedy: str | None = None,
        severity: Severity | None = None,
    ) -> None:
        """A file has this fault as a whole, or has it in a way that wants words of its own."""
        entry = self._entry(kind, file)
        entry.count = len(lines) if count is None else count
        entry.lines = list(lines[: self.shown])
        entry.examples = list(examples[: self.examples])
        entry.said, entry.remedy, entry.severity = said, remedy, severity

    def explain(self, kind: Kind, file: str | Path, said: str, remedy: str | None = None) -> None:
        """Better words for a fault that was noted line by line; `{lines}` stands for their number."""
        entry = self._entry(kind, file)
        entry.said, entry.remedy = said, remedy

    def count(self, kind: Kind, file: str | Path) -> int:
        """How many lines of a file have this fault, so far."""
        entry = self._entries.get((kind.name, str(file)))
        return entry.count if entry else 0

    def forget(self, kind: Kind, file: str | Path) -> None:
        """It was no fault after all."""
        self._entries.pop((kind.name, str(file)), None)

    def findings(self, sizes: Mapping[str, int]) -> list[Finding]:
        """Everything, the worst first. `sizes` are the lines of each file, from which shares are known."""
        found = [self._finding(name, file, entry, sizes.get(file, 0)) for (name, file), entry in self._entries.items()]
        order = list(Severity)
        return sorted(found, key=lambda finding: order.index(finding.severity))

    def _entry(self, kind: Kind, file: str | Path) -> _Entry:
        self._kinds[kind.name] = kind
        return self._entries.setdefault((kind.name, str(file)), _Entry())

    def _finding(self, name: str, file: str, entry: _Entry, size: int) -> Finding:
        kind = self._kinds[name]
        said = kind.said if entry.said is None else entry.said
        return Finding(
            kind=name,
            severity=entry.severity or kind.weigh(entry.count / max(size, 1)),
            file=file,
            lines=tuple(entry.lines),
            count=entry.count,
            said=_counted(said, entry.count),
            remedy=entry.remedy or kind.remedy,
            examples=tuple(entry.examples),
        )


def _counted(said: str, count: int) -> str:
    for what in ("line", "question"):
        said = said.replace(f"{{{what}s}}", f"{count:,} {what}{'' if count == 1 else 's'}")
    return said


def clip(text: str, at: int = 0, width: int = 72) -> str:
    """A piece of a text around a character, with what cannot be seen written out."""
    start = max(0, min(at - width // 2, len(text) - width))
    piece = text[start : start + width]
    seen = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in piece)
    return ("…" if start else "") + seen + ("…" if start + width < len(text) else "")
