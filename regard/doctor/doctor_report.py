"""The report of the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.doctor.finding import Finding, Severity
from regard.doctor.length_checks import LengthDistribution

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, kw_only=True)
class DoctorReport:
    """Findings and statistics of the files of a task."""

    task: str
    files: Mapping[str, int]
    """Number of lines of each file."""
    findings: tuple[Finding, ...]
    """Sorted by severity, highest first."""
    labels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts of each label (or tag), by split."""
    lengths: tuple[LengthDistribution, ...] = ()
    """Length distributions, by file and side."""
    leaked: Mapping[str, set[int]] = field(default_factory=dict)
    """The lines of training files whose input is also in the validation or test data."""
    max_length: int | None = None
    """Length at which texts would be truncated."""

    @property
    def ok(self) -> bool:
        """Whether no finding is blocking (severity `stop`)."""
        return not any(finding.severity is Severity.STOP for finding in self.findings)

    def of_kind(self, kind: str) -> list[Finding]:
        """Return the findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-serializable values."""
        return {
            "task": self.task,
            "ok": self.ok,
            "files": dict(self.files),
            "findings": [asdict(finding) for finding in self.findings],
            "labels": {split: dict(counts) for split, counts in self.labels.items()},
            "max_length": self.max_length,
            "lengths": [_distribution_to_json(lengths, self.max_length) for lengths in self.lengths],
        }


def _distribution_to_json(lengths: LengthDistribution, max_length: int | None) -> dict[str, Any]:
    return {
        "file": lengths.file,
        "side": lengths.side,
        "unit": lengths.unit,
        "texts": int(lengths.counts.sum()),
        "quantiles": {f"{fraction:g}": lengths.quantile(fraction) for fraction in QUANTILES},
        "longest": lengths.longest,
        "histogram": [[low, high, count] for low, high, count in lengths.histogram()],
        "over": None if max_length is None else lengths.count_over(max_length),
        "tokens": lengths.num_tokens or None,
        "unknown": lengths.num_unknown if lengths.num_tokens else None,
    }
