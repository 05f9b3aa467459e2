"""What to do with a text that is too long for a network, in tasks with one result for each text."""

from __future__ import annotations

import enum


class LongInput(enum.StrEnum):
    """How a text that is too long for the network is read."""

    FIRST = "first"
    """Only its first tokens; the others are counted as truncated."""
    MEAN = "mean"
    """In windows, one after the other; the result is the mean of theirs."""
