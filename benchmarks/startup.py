"""The three shortcuts in the start and the end of a command, each compared with the command without it.

    python benchmarks/startup.py MODEL

MODEL is the folder of a translation model, for example `best` of a training run. Each command runs in a separate
process, with and without the shortcut alternately; the minimum over the rounds is reported. The output is the same.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version

from result_rows import ResultRows

SENTENCE = "A man rides a horse."
RUN = "import gc, os, sys\nfrom regard.cli import main\n{}\nmain.main()"
WITHOUT = {
    "no pydantic for unchanged values": "assert callable(main._skip_pydantic); main._skip_pydantic = lambda _: None",
    "os._exit": "os._exit = sys.exit",
    "gc.disable and gc.freeze": "gc.disable = gc.freeze = lambda: None",
}
"""The code that switches off each shortcut."""
PEERS = {
    "no pydantic for unchanged values": "with pydantic for values that need no conversion",
    "os._exit": "with the interpreter's teardown",
    "gc.disable and gc.freeze": "with garbage collection while a model is loaded",
}


def run(code, arguments):
    """Run a command in a new process; return its seconds and its output."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", RUN.format(code), *arguments], check=True, capture_output=True)
    return time.perf_counter() - start, done.stdout


def compare(shortcut, arguments, rounds):
    """Return the minimum of the seconds without and with the shortcut."""
    best = {WITHOUT[shortcut]: float("inf"), "": float("inf")}
    outputs = set()
    for _ in range(rounds + 1):  # the first run of each also fills the file cache
        for code, seconds in best.items():
            new, output = run(code, arguments)
            best[code] = min(seconds, new)
            outputs.add(output)
    assert len(outputs) == 1, f"{shortcut}: the output differs"
    return best.values()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a translation model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    args = parser.parse_args()
    commands = {
        "no pydantic for unchanged values": [["translate", "--help"]],
        "os._exit": [["show", args.model], ["translate", args.model, SENTENCE]],
        "gc.disable and gc.freeze": [["translate", args.model, SENTENCE]],
    }
    versions = f"torch {version('torch')}, typer {version('typer')}, Python {platform.python_version()}"
    print(f"{versions}, load {os.getloadavg()[0]:.1f}, best of {args.rounds + 1}")
    print("| shortcut | command | without, s | with, s | saved, s |\n| --- | --- | --- | --- | --- |")
    results = ResultRows("startup", threads=os.cpu_count(), packages=("torch", "typer"))
    for shortcut, calls in commands.items():
        for call in calls:
            without, with_ = compare(shortcut, call, args.rounds)
            name = " ".join("MODEL" if word == args.model else word for word in call)
            print(f"| {shortcut} | {name} | {without:.3f} | {with_:.3f} | {without - with_:.3f} |", flush=True)
            results.add("startup", f"`regard {name}`", "s", ours=with_, peer=without, peer_name=PEERS[shortcut])
    if args.save:
        results.save()


if __name__ == "__main__":
    main()
