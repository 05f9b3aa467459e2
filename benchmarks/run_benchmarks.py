"""Run the benchmarks that have no rows yet, or those that are named, and save their rows.

    make bench                          # those without rows in benchmarks/results
    make bench ROWS="core load"         # these, again
    make bench ROWS=list                # what there is, and what each needs

A name is that of the script, which is also that of its file in `benchmarks/results`; with "-off", the same without the
compiled kernels, as on ARM, macOS, Windows and machines without a C compiler. A benchmark whose input is not set in the
environment is left out, and the output says so.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from result_rows import read_results

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Benchmark:
    """A script with its arguments."""

    script: str
    arguments: tuple[str, ...] = ()
    """`$NAME` is replaced by the environment variable."""
    needs: tuple[str, ...] = ()
    """Environment variables without which it can not run."""
    minutes: int = 5
    """About how long it takes on two cores."""
    kernels: str = "compiled"

    @property
    def name(self):
        return self.script if self.kernels == "compiled" else f"{self.script}-off"

    def command(self):
        arguments = [os.environ[word[1:]] if word.startswith("$") else word for word in self.arguments]
        return [sys.executable, str(HERE / f"{self.script}.py"), *arguments, "--save"]

    def has_rows(self, results):
        return any(row.kernels == self.kernels for row in results.get(self.script, []))


BENCHMARKS = (
    Benchmark("core", minutes=15),
    Benchmark("core", ("--no-memory", "--rounds", "3"), minutes=8, kernels="off"),
    Benchmark("load", minutes=2),
    Benchmark("startup", ("$REGARD_TRANSLATOR",), needs=("REGARD_TRANSLATOR",), minutes=2),
    Benchmark("data", needs=("REGARD_DATA",), minutes=15),
    Benchmark("generate", minutes=20),
    Benchmark("generate", ("--rounds", "2"), minutes=20, kernels="off"),
    Benchmark("encode", ("--minilm", "$REGARD_MINILM"), needs=("REGARD_DATA", "REGARD_MINILM"), minutes=3),
    Benchmark(
        "encode", ("--minilm", "$REGARD_MINILM"), needs=("REGARD_DATA", "REGARD_MINILM"), minutes=3, kernels="off"
    ),
    Benchmark(
        "translate_file",
        ("$REGARD_TRANSLATOR", "--rounds", "2"),
        needs=("REGARD_DATA", "REGARD_TRANSLATOR"),
        minutes=10,
    ),
    Benchmark(
        "train_translation",
        ("--joeynmt-python", "$JOEYNMT_PYTHON", "--transformers-python", "$ACCELERATE_PYTHON", "--steps", "60"),
        needs=("REGARD_DATA", "JOEYNMT_PYTHON", "ACCELERATE_PYTHON"),
        minutes=10,
    ),
    Benchmark("growth", minutes=10),
    Benchmark("train_characters", needs=("REGARD_DATA",), minutes=6),
    Benchmark("translation_quality", ("$REGARD_TRANSLATOR",), needs=("REGARD_DATA", "REGARD_TRANSLATOR"), minutes=3),
)


def select(names, results):
    """The benchmarks with these names, or those without rows."""
    unknown = set(names) - {benchmark.name for benchmark in BENCHMARKS}
    if unknown:
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(b.name for b in BENCHMARKS)}")
    if names:
        return [benchmark for benchmark in BENCHMARKS if benchmark.name in names]
    return [benchmark for benchmark in BENCHMARKS if not benchmark.has_rows(results)]


def main():
    names, results = sys.argv[1:], read_results()
    if names == ["list"]:
        for benchmark in BENCHMARKS:
            rows = "has rows" if benchmark.has_rows(results) else "no rows"
            needs = f", needs {', '.join(benchmark.needs)}" if benchmark.needs else ""
            print(f"{benchmark.name}: {rows}, about {benchmark.minutes} minutes{needs}")
        return
    failed = []
    for benchmark in select(names, results):
        missing = [name for name in benchmark.needs if not os.environ.get(name)]
        if missing:
            print(f"== {benchmark.name}: left out, set {' and '.join(missing)}", flush=True)
            continue
        print(f"== {benchmark.name}", flush=True)
        environment = {**os.environ, **({"REGARD_NATIVE": "0"} if benchmark.kernels == "off" else {})}
        if subprocess.run(benchmark.command(), env=environment, check=False).returncode:
            failed.append(benchmark.name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
