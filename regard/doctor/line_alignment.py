"""Line alignment of parallel files: where they diverge, judged by line lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector, FindingKind

FloatArray = NDArray[np.float64]

MAX_SHIFTS = 64


def find_divergence(source: Sequence[int], target: Sequence[int]) -> int | None:
    """Return the line, counted from 1, at which two files with different line counts probably diverge.

    The lengths of corresponding lines are correlated. Each number of lines that may be missing so far is a shift, and
    pairing the lines with that shift has a cost. The path of minimum cost from shift 0 to the full difference is found
    exactly (dynamic programming); the files diverge where this path leaves shift 0. None if the counts are equal.
    """
    if len(source) == len(target):
        return None
    if len(source) < len(target):
        source, target = target, source
    longer = np.log1p(np.asarray(source, dtype=float))
    shorter = np.log1p(np.asarray(target, dtype=float))
    missing, count = len(longer) - len(shorter), len(shorter)
    if count < 5:
        return count + 1
    shifts = range(missing + 1) if missing <= MAX_SHIFTS else (0, missing)
    return _divergence_index(_median_difference(longer, shorter), longer, shorter, list(shifts)) + 1


def _median_difference(longer: FloatArray, shorter: FloatArray) -> float:
    """Difference of the medians of the log lengths."""
    return float(np.median(longer) - np.median(shorter))


def _divergence_index(median: float, longer: FloatArray, shorter: FloatArray, shifts: list[int]) -> int:
    count = len(shorter)
    best = np.concatenate([[0.0], np.cumsum(_line_costs(median, longer, shorter, 0))])
    first = np.arange(count + 1)  # for each line, where the best path to it left shift 0
    for iteration, shift in enumerate(shifts[1:]):
        total = np.concatenate([[0.0], np.cumsum(_line_costs(median, longer, shorter, shift))])
        advantage = best - total
        leave = _running_argmin(advantage)
        first = leave if iteration == 0 else first[leave]
        best = advantage[leave] + total
    return int(first[count])


def _line_costs(median: float, longer: FloatArray, shorter: FloatArray, shift: int) -> FloatArray:
    gap = np.abs(longer[shift : shift + len(shorter)] - shorter - median)
    return np.minimum(gap, 1.0)  # capped: a single unusual pair is weak evidence


def _running_argmin(values: FloatArray) -> NDArray[np.intp]:
    """For each index, the index of the minimum so far (the last of equal ones)."""
    minimum = np.minimum.accumulate(values)
    indices = np.where(values <= minimum, np.arange(len(values)), 0)
    return np.maximum.accumulate(indices)


UNCERTAINTY = 60
"""Number of lines by which the estimated range may be wrong."""
MAX_LOCAL_SHIFT, MIN_GAIN = 3, 12.0


def find_misaligned_range(source: Sequence[int], target: Sequence[int]) -> tuple[int, int, int] | None:
    """Return first line, last line and shift of a range of lines that fits better when shifted, or None.

    Two files can have equal line counts and a misaligned range: one line is missing on one side, and later another one
    on the other side.
    """
    if len(source) != len(target) or len(source) < 50:
        return None
    source_lengths, target_lengths = (np.log1p(np.asarray(side, dtype=float)) for side in (source, target))
    median = _median_difference(source_lengths, target_lengths)
    gain, start, end, shift = max(
        (
            _best_shifted_range(median, source_lengths, target_lengths, shift)
            for shift in range(-MAX_LOCAL_SHIFT, MAX_LOCAL_SHIFT + 1)
            if shift
        ),
        key=lambda candidate: candidate[0],
    )
    return (start + 1, end, shift) if gain > MIN_GAIN else None


def _best_shifted_range(
    median: float, source: FloatArray, target: FloatArray, shift: int
) -> tuple[float, int, int, int]:
    """Return gain, start, end and shift of the range of lines that gains most by a shift."""
    low, high = max(0, -shift), len(source) - max(0, shift)
    unshifted = np.minimum(np.abs(source - target - median), 1.0)[low:high]
    shifted = np.minimum(np.abs(source[low + shift : high + shift] - target[low:high] - median), 1.0)
    total = np.concatenate([[0.0], np.cumsum(unshifted - shifted)])
    starts = _running_argmin(total)
    gains = total - total[starts]
    end = int(gains.argmax())
    start, length = int(starts[end]), end - int(starts[end])
    outside = total[-1] - gains[end]
    # With uncorrelated lengths the cumulative sum drifts at random: the lines outside must clearly lose by the shift.
    if length == 0 or gains[end] < 0.08 * length or outside > -0.05 * (len(unshifted) - length):
        return 0.0, 0, 0, shift
    return float(gains[end]), start + low, end + low, shift


@dataclass(frozen=True)
class Misalignment:
    """Where two parallel files are not aligned, approximately."""

    kind: FindingKind
    """The finding that says so."""
    first_line: int
    last_line: int

    def contains(self, line: int) -> bool:
        """Whether a line is in the range, or so near that it may be: it is known approximately."""
        return self.first_line - UNCERTAINTY <= line <= self.last_line + UNCERTAINTY


def check_line_alignment(
    collector: FindingCollector, source: Path, target: Path, lengths: Sequence[Sequence[int]]
) -> Misalignment | None:
    """Add a finding if two parallel files are not aligned, and return where they are not."""
    counts = [len(side) for side in lengths]
    line = find_divergence(lengths[0], lengths[1])
    if line is not None:
        message = f"{source.name} has {counts[0]:,} lines, {target.name} has {counts[1]:,}; "
        message += f"judging by line lengths, they diverge near line {line:,}"
        collector.add_file(finding_kinds.LINE_COUNTS, source, message, lines=[line])
        return Misalignment(finding_kinds.LINE_COUNTS, line, max(counts))
    misaligned = find_misaligned_range(lengths[0], lengths[1])
    if misaligned is None:
        return None
    start, end, shift = misaligned
    message = f"judging by line lengths, lines {start:,} to {end:,} of {target.name} correspond to lines "
    message += f"{start + shift:,} to {end + shift:,} of {source.name}"
    collector.add_file(finding_kinds.MISALIGNED, source, message, lines=[start], count=end - start + 1)
    return Misalignment(finding_kinds.MISALIGNED, start, end)
