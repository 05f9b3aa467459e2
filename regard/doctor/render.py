"""Printing the report of the doctor."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from regard.doctor.doctor_report import DoctorReport
from regard.doctor.finding import Finding, Severity
from regard.doctor.length_checks import LengthDistribution
from regard.terminal import escape_line

COLORS = {Severity.STOP: "bold red", Severity.WARN: "yellow", Severity.NOTE: "cyan"}
BAR_WIDTH = 40
MAX_LABELS_SHOWN = 12


def render(report: DoctorReport, console: Console) -> None:
    """Print a report: files, findings, lengths, labels and recommended fixes."""
    for name, lines in report.files.items():
        console.print(Text(f"{escape_line(name)}: {lines:,} lines"))
    for finding in report.findings:
        _print_finding(finding, console)
    for lengths in report.lengths:
        _print_lengths(lengths, report.max_length, console)
    for split, counts in report.labels.items():
        _print_labels(split, dict(counts), console)
    _print_summary(report, console)


def format_line_numbers(finding: Finding) -> str:
    """Return the line numbers of a finding: "lines 3, 17 and 5 more"."""
    if not finding.lines:
        return ""
    more = finding.count - len(finding.lines)
    numbers = ", ".join(f"{line:,}" for line in finding.lines) + (f" and {more:,} more" if more > 0 else "")
    return f"line{'s' if finding.count > 1 else ''} {numbers}"


def _print_finding(finding: Finding, console: Console) -> None:
    head = Text(f"\n{finding.severity.upper():4} ", style=COLORS[finding.severity])
    head.append(escape_line(f"{finding.file}: {finding.message} [{finding.kind}]"), style="default")
    console.print(head, soft_wrap=True)
    if line_numbers := format_line_numbers(finding):
        console.print(Text(f"     {line_numbers}"), soft_wrap=True)
    for example in finding.examples:
        console.print(Text(f"       {escape_line(str(example))}", style="dim"), soft_wrap=True)


def _print_lengths(lengths: LengthDistribution, max_length: int | None, console: Console) -> None:
    total = int(lengths.counts.sum())
    summary = f"\n{escape_line(str(lengths.file))}, {lengths.side}: median {lengths.quantile(0.5)} {lengths.unit}, "
    summary += f"99% quantile {lengths.quantile(0.99)}, maximum {lengths.longest}"
    console.print(Text(summary), soft_wrap=True)
    bins = lengths.histogram()
    highest = max((count for _, _, count in bins), default=1) or 1
    for low, high, count in bins:
        truncated = " truncated" if max_length is not None and low > max_length else ""
        bar = "█" * round(BAR_WIDTH * count / highest) or ("▏" if count else "")
        console.print(Text(f"  {low:>6}–{high:<6} {bar} {count:,}{truncated}"), soft_wrap=True)
    if max_length is not None:
        over = lengths.count_over(max_length)
        fraction = f"{over:,} of {total:,} ({over / max(total, 1):.1%})"
        console.print(Text(f"  truncated at {max_length} {lengths.unit}: {fraction}"))


def _print_labels(split: str, counts: dict[str, int], console: Console) -> None:
    total = sum(counts.values())
    shown = [
        f"{escape_line(label)} {count:,} ({count / total:.1%})"
        for label, count in list(counts.items())[:MAX_LABELS_SHOWN]
    ]
    more = f", and {len(counts) - MAX_LABELS_SHOWN} more" if len(counts) > MAX_LABELS_SHOWN else ""
    console.print(Text(f"\n{split}: {len(counts)} labels: {', '.join(shown)}{more}"), soft_wrap=True)


def _print_summary(report: DoctorReport, console: Console) -> None:
    """Print the recommended fixes, most important first."""
    if not report.findings:
        console.print(Text("\nNo problems found. Training can start.", style="bold green"))
        return
    console.print(Text("\nRecommended fixes", style="bold"))
    fixes = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    for number, finding in enumerate(fixes or report.findings, 1):
        line_numbers = format_line_numbers(finding)
        place = f"{finding.file}{f', {line_numbers}' if line_numbers else ''}"
        fix = escape_line(f"{place}: {finding.remedy} [{finding.kind}]")
        console.print(Text(f"  {number}. {fix}"), soft_wrap=True)
    if report.ok:
        console.print(Text("\nNo blocking problems. Training can start.", style="bold green"))
    else:
        blocking = sum(finding.severity is Severity.STOP for finding in report.findings)
        problems = f"{blocking} blocking problem{'' if blocking == 1 else 's'}"
        console.print(Text(f"\n{problems}: fix before training.", style="bold red"))
