"""Check of line endings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector


class LineEndingCheck:
    """Line endings of a file: \\n or \\r\\n. If both occur, the rarer one is reported."""

    def __init__(self, path: Path, collector: FindingCollector) -> None:
        self.path, self.collector = path, collector
        self.counts = {b"\n": 0, b"\r\n": 0}
        self.lines: dict[bytes, list[int]] = {b"\n": [], b"\r\n": []}
        self.last_line, self.line_number = b"\n", 0

    def update(self, first_line: int, raw_lines: Sequence[bytes]) -> None:
        """Count the line endings of a block."""
        block, max_lines = b"".join(raw_lines), self.collector.max_lines
        num_crlf = block.count(b"\r\n")
        num_lf = len(raw_lines) - num_crlf
        if block.count(b"\r") > num_crlf:
            self._check_bare_returns(first_line, raw_lines)
        if num_crlf and len(self.lines[b"\r\n"]) < max_lines:
            for number, line in enumerate(raw_lines, first_line):
                if line.endswith(b"\r\n"):
                    self._record_line(b"\r\n", number)
        if num_lf and len(self.lines[b"\n"]) < max_lines:
            for number, line in enumerate(raw_lines, first_line):
                if not line.endswith(b"\r\n"):
                    self._record_line(b"\n", number)
        self.counts[b"\r\n"] += num_crlf
        self.counts[b"\n"] += num_lf
        self.last_line, self.line_number = raw_lines[-1], first_line + len(raw_lines) - 1

    def finish(self) -> None:
        """Add the findings of the file."""
        if not self.last_line.endswith(b"\n"):
            self.collector.add_file(
                finding_kinds.NO_FINAL_END, self.path, finding_kinds.NO_FINAL_END.message, lines=[self.line_number]
            )
            self.counts[b"\n"] -= 1  # the last line was counted, but has no line ending
            self.lines[b"\n"] = [line for line in self.lines[b"\n"] if line != self.line_number]
        rare = min(self.counts, key=lambda ending: self.counts[ending])
        if self.counts[rare]:
            name, other = ("\\n", "\\r\\n") if rare == b"\n" else ("\\r\\n", "\\n")
            message = f"{{lines}} ending in {name}, the others in {other}"
            self.collector.add_file(
                finding_kinds.MIXED_ENDS, self.path, message, lines=self.lines[rare], count=self.counts[rare]
            )

    def _record_line(self, ending: bytes, line: int) -> None:
        if len(self.lines[ending]) <= self.collector.max_lines:
            self.lines[ending].append(line)

    def _check_bare_returns(self, first_line: int, raw_lines: Sequence[bytes]) -> None:
        for number, line in enumerate(raw_lines, first_line):
            content = line.removesuffix(b"\n").removesuffix(b"\r")
            if b"\r" in content:
                text, position = content.decode(errors="replace"), content.index(b"\r")
                self.collector.add_line(finding_kinds.LONE_RETURN, self.path, number, text, position)
