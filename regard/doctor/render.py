"""The doctor's report for people."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from regard.doctor.doctor_report import Report
from regard.doctor.finding import Finding, Severity
from regard.doctor.length_checks import Spread

COLOURS = {Severity.STOP: "bold red", Severity.WARN: "yellow", Severity.NOTE: "cyan"}
BAR = 40
LABELS = 12


def render(report: Report, console: Console) -> None:
    """Print a report: files, findings, lengths, labels, and what to do."""
    for name, lines in report.files.items():
        console.print(f"{escape(name)}: {lines:,} lines", highlight=False)
    for finding in report.findings:
        _finding(finding, console)
    for spread in report.lengths:
        _lengths(spread, report.length, console)
    for split, counts in report.labels.items():
        _labels(split, dict(counts), console)
    _end(report, console)


def places(finding: Finding) -> str:
    """The lines of a finding in words: "lines 3, 17 and 5 more"."""
    if not finding.lines:
        return ""
    more = finding.count - len(finding.lines)
    told = ", ".join(f"{line:,}" for line in finding.lines) + (f" and {more:,} more" if more > 0 else "")
    return f"line{'s' if finding.count > 1 else ''} {told}"


def _finding(finding: Finding, console: Console) -> None:
    head = Text(f"\n{finding.severity.upper():4} ", style=COLOURS[finding.severity])
    head.append(f"{finding.file}: {finding.said} [{finding.kind}]", style="default")
    console.print(head, soft_wrap=True)
    if where := places(finding):
        console.print(Text(f"     {where}"), soft_wrap=True)
    for example in finding.examples:
        console.print(Text(f"       {example}", style="dim"), soft_wrap=True)


def _lengths(spread: Spread, length: int | None, console: Console) -> None:
    total = int(spread.counts.sum())
    said = f"\n{spread.file}, {spread.side}: half have up to {spread.quantile(0.5)} {spread.unit}, "
    said += f"99% up to {spread.quantile(0.99)}, the longest {spread.longest}"
    console.print(Text(said), soft_wrap=True)
    bins = spread.histogram()
    most = max((count for _, _, count in bins), default=1) or 1
    for low, high, count in bins:
        cut = " cut" if length is not None and low > length else ""
        bar = "█" * round(BAR * count / most) or ("▏" if count else "")
        console.print(Text(f"  {low:>6}–{high:<6} {bar} {count:,}{cut}"), soft_wrap=True)
    if length is not None:
        over = spread.over(length)
        console.print(Text(f"  cut at {length} {spread.unit}: {over:,} of {total:,} ({over / max(total, 1):.1%})"))


def _labels(split: str, counts: dict[str, int], console: Console) -> None:
    total = sum(counts.values())
    told = [f"{label} {count:,} ({count / total:.1%})" for label, count in list(counts.items())[:LABELS]]
    more = f", and {len(counts) - LABELS} more" if len(counts) > LABELS else ""
    console.print(Text(f"\n{split}: {len(counts)} labels: {', '.join(told)}{more}"), soft_wrap=True)


def _end(report: Report, console: Console) -> None:
    """What to do, the most important first."""
    if not report.findings:
        console.print(Text("\nNothing was found. Training can go ahead.", style="bold green"))
        return
    console.print(Text("\nWhat to do", style="bold"))
    todo = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    for number, finding in enumerate(todo or report.findings, 1):
        where = places(finding)
        told = f"  {number}. {finding.file}{f', {where}' if where else ''}: {finding.remedy} [{finding.kind}]"
        console.print(Text(told), soft_wrap=True)
    if report.go_ahead:
        console.print(Text("\nTraining can go ahead.", style="bold green"))
    else:
        stops = sum(finding.severity is Severity.STOP for finding in report.findings)
        console.print(Text(f"\nTraining should not go ahead before {stops} of these are mended.", style="bold red"))
