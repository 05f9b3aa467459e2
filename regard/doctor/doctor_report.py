"""What the doctor found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.doctor.finding import Finding, Severity
from regard.doctor.length_checks import Spread

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found in a task's files."""

    task: str
    files: Mapping[str, int]
    """How many lines each file has."""
    findings: tuple[Finding, ...]
    """The worst first."""
    labels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each set, how often each label (or tag) was met."""
    lengths: tuple[Spread, ...] = ()
    """How long the texts of each file's sides are."""
    length: int | None = None
    """Where texts would be cut."""

    @property
    def go_ahead(self) -> bool:
        """Whether training should go ahead."""
        return not any(finding.severity is Severity.STOP for finding in self.findings)

    def of(self, kind: str) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    def as_json(self) -> dict[str, Any]:
        """The report for machines."""
        return {
            "task": self.task,
            "go_ahead": self.go_ahead,
            "files": dict(self.files),
            "findings": [asdict(finding) for finding in self.findings],
            "labels": {split: dict(counts) for split, counts in self.labels.items()},
            "length": self.length,
            "lengths": [_spread(spread, self.length) for spread in self.lengths],
        }


def _spread(spread: Spread, length: int | None) -> dict[str, Any]:
    return {
        "file": spread.file,
        "side": spread.side,
        "unit": spread.unit,
        "texts": int(spread.counts.sum()),
        "quantiles": {f"{share:g}": spread.quantile(share) for share in QUANTILES},
        "longest": spread.longest,
        "histogram": [[low, high, count] for low, high, count in spread.histogram()],
        "over": None if length is None else spread.over(length),
        "tokens": spread.tokens or None,
        "unknown": spread.unknown if spread.tokens else None,
    }
