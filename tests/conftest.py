"""Says after the run how much of the family tree was compared."""


def pytest_terminal_summary(terminalreporter):
    passed = terminalreporter.stats.get("passed", [])
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
