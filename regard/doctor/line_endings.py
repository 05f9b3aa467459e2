"""How lines end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.doctor import finding_kinds
from regard.doctor.finding import Ledger


class LineEnds:
    """The ends of a file's lines: \\n or \\r\\n. Where both are met, the rarer kind is the fault."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path, self.ledger = path, ledger
        self.counts = {b"\n": 0, b"\r\n": 0}
        self.lines: dict[bytes, list[int]] = {b"\n": [], b"\r\n": []}
        self.last, self.number = b"\n", 0

    def see(self, first: int, raw: Sequence[bytes]) -> None:
        """Some lines more."""
        joined = b"".join(raw)
        with_return, plain = joined.count(b"\r\n"), len(raw)
        if joined.count(b"\r") > with_return:
            self._lone(first, raw)
        for place, line in enumerate(raw) if with_return and len(self.lines[b"\r\n"]) < self.ledger.shown else ():
            if line.endswith(b"\r\n"):
                self._keep(b"\r\n", first + place)
        plain -= with_return
        for place, line in enumerate(raw) if plain and len(self.lines[b"\n"]) < self.ledger.shown else ():
            if not line.endswith(b"\r\n"):
                self._keep(b"\n", first + place)
        self.counts[b"\r\n"] += with_return
        self.counts[b"\n"] += plain
        self.last, self.number = raw[-1], first + len(raw) - 1

    def finish(self) -> None:
        """Say what there is to say of the file."""
        if not self.last.endswith(b"\n"):
            self.ledger.say(finding_kinds.NO_FINAL_END, self.path, finding_kinds.NO_FINAL_END.said, lines=[self.number])
            self.counts[b"\n"] -= 1  # it has no end at all
            self.lines[b"\n"] = [line for line in self.lines[b"\n"] if line != self.number]
        rare = min(self.counts, key=lambda end: self.counts[end])
        if self.counts[rare]:
            name, other = ("\\n", "\\r\\n") if rare == b"\n" else ("\\r\\n", "\\n")
            said = f"{{lines}} ending in {name}, the others in {other}"
            self.ledger.say(finding_kinds.MIXED_ENDS, self.path, said, lines=self.lines[rare], count=self.counts[rare])

    def _keep(self, end: bytes, line: int) -> None:
        if len(self.lines[end]) <= self.ledger.shown:
            self.lines[end].append(line)

    def _lone(self, first: int, raw: Sequence[bytes]) -> None:
        for place, line in enumerate(raw):
            inside = line.removesuffix(b"\n").removesuffix(b"\r")
            if b"\r" in inside:
                self.ledger.note(
                    finding_kinds.LONE_RETURN,
                    self.path,
                    first + place,
                    inside.decode(errors="replace"),
                    inside.index(b"\r"),
                )
