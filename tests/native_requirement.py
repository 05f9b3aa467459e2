"""Tests of the native library fail instead of being skipped where it must be there: `REGARD_REQUIRE_NATIVE=1`."""

import os

UNAVAILABLE = "the native library is not available"
"""The reason of every skip for want of the native library."""


def fail_required_skip(report, environment=os.environ):
    """Turn the report of a skipped test into a failure, if the native library was required."""
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if environment.get("REGARD_REQUIRE_NATIVE", "0") != "1" or UNAVAILABLE not in reason:
        return
    from regard.native.library import status

    report.outcome = "failed"
    report.longrepr = f"REGARD_REQUIRE_NATIVE=1, and {UNAVAILABLE}: {status()}"
