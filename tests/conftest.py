"""Deterministic examples of hypothesis, required kernels, and a report of how much was compared with transformers."""

import os
from collections import Counter

import pytest
from hypothesis import settings
from native_requirement import fail_required_skip

# Most test files import torch before regard, which then cannot choose the waiting policy (and warns).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The same examples on every machine, so that a failure is reproducible. Search for new ones with
# `make test PYTEST="-n 2 --hypothesis-profile=explore"`; add what it finds as an @example or as a test.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("same")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    report = (yield).get_result()
    fail_required_skip(report)


def pytest_terminal_summary(terminalreporter):
    passed = terminalreporter.stats.get("passed", [])
    report_parity(terminalreporter, passed)
    report_generation(terminalreporter, passed)


def report_generation(terminalreporter, passed):
    counts = Counter()
    for report in passed:
        for name, count in report.user_properties:
            if name.startswith("generation: "):
                counts[name.removeprefix("generation: ")] += count
    if counts:
        terminalreporter.write_line(
            f"generation: {counts['texts']} texts compared with transformers, {counts['hypotheses']} hypotheses, "
            f"{counts['ties']} ties"
        )


def report_parity(terminalreporter, passed):
    compared = {report.nodeid for report in passed if "parity/test_parity.py" in report.nodeid}
    if not compared:
        return
    from parity.grid import GRID

    from regard.families.registry import FAMILIES

    classes = sum(len(family.architectures) for family in FAMILIES.values())
    terminalreporter.write_line(
        f"parity: {len(FAMILIES)} families of checkpoints, {classes} published classes, {len(GRID)} cases in the grid, "
        f"{len(compared)} comparisons passed"
    )
