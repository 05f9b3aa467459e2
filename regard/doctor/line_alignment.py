"""Where two files that should go side by side, line by line, part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.doctor import finding_kinds
from regard.doctor.finding import Ledger

Floats = NDArray[np.float64]

SHIFTS = 64


def parting(source: Sequence[int], target: Sequence[int]) -> int | None:
    """The line at which two sides of different numbers of lines probably part, from 1.

    Lines that belong together have lengths that go together. For each number of lines that may have been lost so far,
    the lines fit with that shift; the best path from no shift to the whole difference is found exactly, and where it
    first leaves no shift, the sides part. None if they have the same number.
    """
    if len(source) == len(target):
        return None
    if len(source) < len(target):
        source, target = target, source
    longer = np.log1p(np.asarray(source, dtype=float))
    shorter = np.log1p(np.asarray(target, dtype=float))
    lost, count = len(longer) - len(shorter), len(shorter)
    if count < 5:
        return count + 1
    shifts = range(lost + 1) if lost <= SHIFTS else (0, lost)
    return _leave(_usual(longer, shorter), longer, shorter, list(shifts)) + 1


def _usual(longer: Floats, shorter: Floats) -> float:
    """The usual difference of the two sides' lengths."""
    return float(np.median(longer) - np.median(shorter))


def _leave(usual: float, longer: Floats, shorter: Floats, shifts: list[int]) -> int:
    count = len(shorter)
    best = np.concatenate([[0.0], np.cumsum(_costs(usual, longer, shorter, 0))])
    first = np.arange(count + 1)  # where the best path to each place left shift 0
    for turn, shift in enumerate(shifts[1:]):
        total = np.concatenate([[0.0], np.cumsum(_costs(usual, longer, shorter, shift))])
        before = best - total
        leave = _where_least(before)
        first = leave if turn == 0 else first[leave]
        best = before[leave] + total
    return int(first[count])


def _costs(usual: float, longer: Floats, shorter: Floats, shift: int) -> Floats:
    gap = np.abs(longer[shift : shift + len(shorter)] - shorter - usual)
    return np.minimum(gap, 1.0)  # a pair that was odd before is no proof


def _where_least(values: Floats) -> NDArray[np.intp]:
    """For each place, where the least value up to it stands (the last of equals)."""
    least = np.minimum.accumulate(values)
    places = np.where(values <= least, np.arange(len(values)), 0)
    return np.maximum.accumulate(places)


NEAR, GAIN = 3, 12.0


def wandering(source: Sequence[int], target: Sequence[int]) -> tuple[int, int, int] | None:
    """First and last line, and the shift, of the lines that fit better to their neighbours on the other side.

    Two files may have the same number of lines and yet part on the way, when a line was lost on one side and another
    later on the other. None if nothing speaks for it.
    """
    if len(source) != len(target) or len(source) < 50:
        return None
    ours, theirs = (np.log1p(np.asarray(side, dtype=float)) for side in (source, target))
    usual = _usual(ours, theirs)
    found = max(
        (_stretch(usual, ours, theirs, shift) for shift in range(-NEAR, NEAR + 1) if shift), key=lambda one: one[0]
    )
    gain, begin, end, shift = found
    return (begin + 1, end, shift) if gain > GAIN else None


def _stretch(usual: float, ours: Floats, theirs: Floats, shift: int) -> tuple[float, int, int, int]:
    """The stretch of lines that gains most by a shift: how much, its bounds, the shift."""
    low, high = max(0, -shift), len(ours) - max(0, shift)
    apart = np.minimum(np.abs(ours - theirs - usual), 1.0)[low:high]
    shifted = np.minimum(np.abs(ours[low + shift : high + shift] - theirs[low:high] - usual), 1.0)
    total = np.concatenate([[0.0], np.cumsum(apart - shifted)])
    begin = _where_least(total)
    gains = total - total[begin]
    end = int(gains.argmax())
    start, length = int(begin[end]), end - int(begin[end])
    outside = total[-1] - gains[end]
    # Where lengths say nothing at all, sums wander by themselves: the other lines must clearly lose by the shift.
    if length == 0 or gains[end] < 0.08 * length or outside > -0.05 * (len(apart) - length):
        return 0.0, 0, 0, shift
    return float(gains[end]), start + low, end + low, shift


def report_parting(ledger: Ledger, source: Path, target: Path, lengths: Sequence[Sequence[int]]) -> bool:
    """Say that two files do not go together line by line, and where they probably part. Whether they do part."""
    counts = [len(one) for one in lengths]
    line = parting(lengths[0], lengths[1])
    if line is not None:
        said = f"{source.name} has {counts[0]:,} lines, {target.name} has {counts[1]:,}; by their lengths, they part "
        ledger.say(finding_kinds.LINE_COUNTS, source, f"{said}near line {line:,}", lines=[line])
        return True
    found = wandering(lengths[0], lengths[1])
    if found is None:
        return False
    begin, end, shift = found
    said = f"by their lengths, lines {begin:,} to {end:,} of {target.name} belong to lines {begin + shift:,} to "
    ledger.say(
        finding_kinds.MISALIGNED,
        source,
        f"{said}{end + shift:,} of {source.name}",
        lines=[begin],
        count=end - begin + 1,
    )
    return True
