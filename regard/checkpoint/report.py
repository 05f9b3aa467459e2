"""What became of each tensor of a checkpoint."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


class Fate(enum.Enum):
    """What became of a tensor."""

    USED = "used"
    TIED = "tied"
    """It repeats another tensor, which is used."""
    IGNORED = "ignored"
    """It is known, and not needed."""
    MISSING = "missing"
    """It was not there: the parameter is newly initialised, and has to be trained."""
    MISSHAPEN = "misshapen"
    """It has another shape than the network needs."""
    UNKNOWN = "unknown"
    """Nobody knows what it is for."""


@dataclass(frozen=True)
class Line:
    """One tensor."""

    theirs: str
    """Its name in the checkpoint."""
    ours: tuple[str, ...]
    """The parameters that it holds."""
    fate: Fate
    why: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a network comes from: its family, and its config as published, for whoever saves it again."""

    family: str
    architecture: str
    theirs: dict[str, Any]


@dataclass
class Report:
    """What became of each tensor when a checkpoint was read."""

    folder: str
    origin: Origin | None = None
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, theirs: str, ours: tuple[str, ...], fate: Fate, why: str = "") -> None:
        """Note what became of a tensor."""
        self.lines.append(Line(theirs, ours, fate, why))

    def having(self, *fates: Fate) -> list[Line]:
        """The tensors that met one of these fates."""
        return [line for line in self.lines if line.fate in fates]

    @property
    def new(self) -> list[str]:
        """The parameters that the checkpoint did not have: they start untrained."""
        return [name for line in self.having(Fate.MISSING) for name in line.ours]

    def summary(self) -> str:
        """A line of counts, and a loud one if anything starts untrained."""
        counts = Counter(line.fate for line in self.lines)
        told = ", ".join(f"{counts[fate]} {fate.value}" for fate in Fate if counts[fate])
        lines = [f"{self.folder}: {told}", *self.notes]
        if self.new:
            lines.append(
                f"WARNING: {len(self.new)} parameters are not in the checkpoint and start untrained: "
                + ", ".join(self.new)
                + ". Train them before you trust what they say."
            )
        return "\n".join(lines)

    def render(self) -> str:
        """Every tensor that was not simply used, with the reason, under the summary."""
        others = [line for line in self.lines if line.fate is not Fate.USED]
        told = [f"  {line.fate.value:9} {line.theirs}" + (f"  ({line.why})" if line.why else "") for line in others]
        return "\n".join([self.summary(), *told])
