"""With `REGARD_REQUIRE_NATIVE=1`, a test that is skipped for want of the native library fails."""

from types import SimpleNamespace

import pytest
from native_requirement import UNAVAILABLE, fail_required_skip


def report_of(outcome, longrepr):
    return SimpleNamespace(outcome=outcome, skipped=outcome == "skipped", longrepr=longrepr)


@pytest.mark.parametrize(
    ("outcome", "longrepr", "required", "expected"),
    [
        ("skipped", ("test.py", 3, f"Skipped: {UNAVAILABLE}"), "1", "failed"),
        ("skipped", ("test.py", 3, f"Skipped: {UNAVAILABLE}"), "0", "skipped"),
        ("skipped", ("test.py", 3, "Skipped: REGARD_DATA is not set"), "1", "skipped"),
        ("passed", None, "1", "passed"),
    ],
)
def test_only_a_required_library_turns_a_skip_into_a_failure(outcome, longrepr, required, expected):
    report = report_of(outcome, longrepr)
    fail_required_skip(report, {"REGARD_REQUIRE_NATIVE": required})
    assert report.outcome == expected
    assert (report.longrepr != longrepr) == (outcome != expected)
