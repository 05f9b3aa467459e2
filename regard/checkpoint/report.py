"""The load status of every tensor of a checkpoint."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.terminal import escape_line


class LoadStatus(enum.Enum):
    """What happened to a tensor of the checkpoint, or to a parameter of the network."""

    LOADED = "loaded"
    TIED = "tied"
    """It repeats another tensor, which is loaded."""
    IGNORED = "ignored"
    """It is known and not needed."""
    MISSING = "missing"
    """The layer is not in the checkpoint: the parameter is newly initialized and has to be trained."""
    MISMATCHED = "mismatched"
    """Its shape, dtype or values do not match the network: an error."""
    UNEXPECTED = "unexpected"
    """It belongs to no parameter of the network: an error."""
    INCOMPLETE = "incomplete"
    """The parameter is not in the checkpoint, and must not be newly initialized: an error."""


@dataclass(frozen=True)
class ReportLine:
    """The load status of one tensor."""

    theirs: str
    """Its name in the checkpoint."""
    ours: tuple[str, ...]
    """The parameters that it is loaded into."""
    status: LoadStatus
    reason: str = ""


@dataclass(frozen=True)
class Origin:
    """The family, class and published config of a loaded network; `save` writes this config again."""

    family: str
    architecture: str
    config: dict[str, Any]


@dataclass
class LoadReport:
    """The load status of every tensor of a checkpoint."""

    folder: str
    origin: Origin | None = None
    lines: list[ReportLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dtype: torch.dtype = torch.float32
    """Data type of the stored weights; the widest if there are several."""

    def add(self, theirs: str, ours: tuple[str, ...], status: LoadStatus, reason: str = "") -> None:
        """Add the status of a tensor."""
        self.lines.append(ReportLine(theirs, ours, status, reason))

    def with_status(self, *statuses: LoadStatus) -> list[ReportLine]:
        """Return the tensors with one of these statuses."""
        return [line for line in self.lines if line.status in statuses]

    @property
    def newly_initialized(self) -> list[str]:
        """The parameters that are not in the checkpoint and were newly initialized."""
        return [name for line in self.with_status(LoadStatus.MISSING) for name in line.ours]

    def summary(self) -> str:
        """Return the count of each status, the notes, and a warning if any parameter is newly initialized."""
        counts = Counter(line.status for line in self.lines)
        totals = ", ".join(f"{counts[status]} {status.value}" for status in LoadStatus if counts[status])
        lines = [f"{self.folder}: {totals}", *self.notes]
        names = self.newly_initialized
        if names:
            lines.append(
                f"WARNING: {len(names)} parameters are not in the checkpoint and are newly initialized: "
                f"{escape_line(', '.join(names))}. Train the model before using its predictions."
            )
        return "\n".join(lines)

    def render(self) -> str:
        """Return the summary, and a line with the reason for every tensor that was not simply loaded."""
        others = [line for line in self.lines if line.status is not LoadStatus.LOADED]
        details = [
            escape_line(f"  {line.status.value:9} {line.theirs}" + (f"  ({line.reason})" if line.reason else ""))
            for line in others
        ]
        return "\n".join([self.summary(), *details])
