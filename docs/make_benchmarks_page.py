"""Write docs/benchmarks.md from `benchmarks/results/*.json` alone: `make docs`."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from result_rows import KINDS, read_results  # noqa: E402 (found by the line above)

PAGE = ROOT / "docs" / "benchmarks.md"
INTRO = """\
# Benchmarks

Written by `make docs` from `benchmarks/results/*.json`; every row has the command that measured it.

A ratio compares regard with a peer in the same run: the two alternate, the best of several rounds counts, with the same
threads and the same work, and their outputs are compared first. **Above 1, regard is better**: faster, smaller or more
accurate. Machines are shared, so values of different runs cannot be compared, but ratios can. `make bench` runs the
benchmarks that have no rows yet; `make bench ROWS="core load"` runs the named ones. The scripts are in
[benchmarks/](../benchmarks); what was tried and learnt on the way is in [lab-notes.md](lab-notes.md).
"""


def all_rows():
    """The rows of all files in the order of the page: by kind, then as the scripts wrote them."""
    order = list(KINDS)
    rows = [row for file in read_results().values() for row in file]
    return sorted(rows, key=lambda row: order.index(row.kind))


def markdown():
    """The page."""
    rows = all_rows()
    machines = list(dict.fromkeys(row.cpu for row in rows))
    parts = [INTRO, machine_block(machines)]
    for kind in dict.fromkeys(row.kind for row in rows):
        parts.append(kind_block(kind, [row for row in rows if row.kind == kind], machines))
    return "\n".join(parts)


def machine_block(machines):
    lines = [f"| {machine_letter(machines, cpu)} | {cpu} |" for cpu in machines]
    return "\n".join(["## Machines", "", "| | CPU |", "| --- | --- |", *lines, ""])


def machine_letter(machines, cpu):
    return chr(ord("A") + machines.index(cpu))


def kind_block(kind, rows, machines):
    runs = list(dict.fromkeys(run_key(row) for row in rows))
    with_peer = any(row.peer_name for row in rows)
    columns = ["What", "regard", *(["Peer", "Ratio"] if with_peer else []), "Run"]
    lines = [f"## {KINDS[kind].title}", "", KINDS[kind].intro, "", "| " + " | ".join(columns) + " |"]
    lines += ["| --- |" + " ---: |" * (len(columns) - 1)]
    used = set()
    lines += [table_line(row, runs.index(run_key(row)) + 1, with_peer, used) for row in rows]
    lines += ["", *(f"{number}. {run_line(run, machines)}" for number, run in enumerate(runs, 1)), ""]
    return "\n".join(lines)


def table_line(row, run_number, with_peer, used):
    """A line of the table, with an anchor if it is the first row of this name (a later machine has none)."""
    anchor = "" if row.anchor in used else f'<a id="{row.anchor}"></a>'
    used.add(row.anchor)
    what = row.what + (", without compiled kernels" if row.kernels == "off" else "")
    note = f"<br><sub>{row.note}</sub>" if row.note else ""
    peer = f"{row.peer_name} {value(row.peer, row.unit)}".strip()
    ratio = "" if row.ratio is None else f"**{row.ratio:.2f}×**"
    cells = [f"{anchor}{what}{note}", value(row.ours, row.unit), *([peer, ratio] if with_peer else []), str(run_number)]
    return "| " + " | ".join(cells) + " |"


def value(number, unit):
    """A number with its unit: four digits, thousands separated."""
    if number is None:
        return ""
    if "BLEU" in unit or "chrF" in unit:
        text = f"{number:.2f}"
    else:
        text = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
    return f"{text} {unit}".strip()


def run_key(row):
    return (row.date, row.cpu, row.threads, row.kernels, tuple(row.versions.items()), row.command)


def run_line(run, machines):
    date, cpu, threads, kernels, versions, command = run
    libraries = ", ".join(f"{name} {number}" for name, number in versions)
    threads = f"{threads} thread{'s' if threads > 1 else ''}"
    without = ", without compiled kernels" if kernels == "off" else ""
    return f"{date}, machine {machine_letter(machines, cpu)}, {threads}{without}; {libraries}: `{command}`"


if __name__ == "__main__":
    PAGE.write_text(markdown(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
