"""Runs commands on damaged files, each in a forked process, and judges how they end.

python fuzz_worker.py FOLDER SECONDS SEED [NUMBER]    prints JSON: cases, exit codes, violations; NUMBER: one case only

FOLDER has `seeds` (sound models, recipes, runs and data; made by the test) and `outside`, which no command may touch.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import fuzz_mutations
import torch

import regard.checkpoint.load
import regard.cli.main
import regard.doctor.examination
import regard.engine.quantization_error
import regard.evaluation.train
import regard.model
import regard.native.library
import regard.training.recipe.dry_run
from regard.terminal import CONTROL_CHARACTERS

CASE_SECONDS = 60
MEMORY = 6 * 2**30
FORBIDDEN_EVENTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "socket.connect", "pty.spawn")


def model_case(draw, folder):
    name = draw.choice(["translate", "generate", "classify"])
    model = folder / name
    task = [name, name, "texts.txt", *(["--max-new-tokens", "3"] if name != "classify" else [])]
    if name != "classify" and draw.random() < 0.3:
        task += draw.choice([["--beam", "3"], ["--beam", "99999999"], ["--n-best", "2"], ["--length-penalty", "1e300"]])
    commands = [task, task, ["show", name, "--tensors"], ["tokenize", name, "texts.txt"], ["convert", name, "out"]]
    commands += [["convert", name, "out", "--force", *draw.choice([[], ["--precision", "int8"]])]]
    return model, draw.choice(commands)


def recipe_case(draw, folder):
    return folder / "recipe.toml", draw.choice(
        [["train", "recipe.toml", "--dry-run"], ["doctor", "recipe.toml"], ["train", "recipe.toml", "training.steps=1"]]
    )


def run_case(draw, folder):
    resume = ["train", "recipe.toml", "-o", "run", "--resume", "training.steps=5"]
    return folder / "run", draw.choice([resume, resume, ["plot", "run"], ["train", "recipe.toml", "-o", "run"]])


def data_case(draw, folder):
    name = draw.choice(["texts.txt", "train.a", "train.b", "valid.a"])
    if name == "texts.txt":
        command = draw.choice(
            [["translate", "translate", name, "--max-new-tokens", "2"], ["tokenize", "translate", name]]
        )
        return folder / name, command
    pairs = ["doctor", "--task", "translate", "train.a", "train.b", "--valid", "valid.a", "valid.b"]
    return folder / name, draw.choice([pairs, ["train", "recipe.toml", "training.steps=1"]])


CASES = [model_case, model_case, model_case, recipe_case, run_case, data_case]


def prepare(draw, folder, outside):
    """Copy the seeds, damage one or two files, and return the command with a description."""
    shutil.copytree(folder.parent / "seeds", folder)
    place, command = draw.choice(CASES)(draw, folder)
    notes = []
    for _ in range(draw.choice([1, 1, 1, 2])):
        files = [path for path in sorted(place.rglob("*")) if path.is_file()] if place.is_dir() else [place]
        if files and place.exists():
            notes.append(fuzz_mutations.mutate(draw.choice(files), draw, outside))
    if place.is_dir() and draw.random() < 0.25:
        notes.append(fuzz_mutations.plant(place, draw, outside))
    return command, f"{' '.join(command)}: {', '.join(notes)}"


def child(command, folder, outside):
    """Run a command in this process. It never returns."""
    os.setsid()
    os.chdir(folder)
    for number, (name, flags) in enumerate(
        ((os.devnull, os.O_RDONLY), ("stdout", os.O_CREAT | os.O_WRONLY), ("stderr", os.O_CREAT | os.O_WRONLY))
    ):
        os.dup2(os.open(name, flags), number)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    report = os.open("violations", os.O_CREAT | os.O_WRONLY)

    def audit(event, arguments):
        if event in FORBIDDEN_EVENTS:
            os.write(report, f"{event} {arguments[:1]}\n".encode())
        if event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            path = os.path.realpath(arguments[0])
            if not path.startswith((str(folder), "/dev/null")):
                os.write(report, f"write {path}\n".encode())

    sys.addaudithook(audit)
    sys.argv = ["regard", *command]
    try:
        regard.cli.main.main()
    except SystemExit as end:
        os._exit(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(99)


def wait(pid):
    """Return the status of a process, or None after killing it because it took too long."""
    end = time.monotonic() + CASE_SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def judge(status, folder, outside, secret):
    """Return what is wrong with the end of a command."""
    errors = (folder / "stderr").read_text(errors="replace")
    problems = []
    if status is None:
        problems.append("hangs")
    elif os.WIFSIGNALED(status):
        problems.append(f"signal {os.WTERMSIG(status)}")
    elif os.WEXITSTATUS(status) not in (0, 1, 2):
        problems.append(f"exit code {os.WEXITSTATUS(status)}")
    elif os.WEXITSTATUS(status):
        output = errors + (folder / "stdout").read_text(errors="replace")
        if not re.search(r"^(error: |Error: |Usage: )|fix before training", output, re.M):
            problems.append("fails without a message")
    if "Traceback" in errors:
        problems.append("traceback")
    if CONTROL_CHARACTERS.search(errors):
        problems.append("control characters")
    if len(re.findall(r"^error: ", errors, re.M)) > 1:
        problems.append("forged error")
    problems += (folder / "violations").read_text(errors="replace").splitlines()
    if sorted(path.name for path in outside.iterdir()) != ["secret"] or (outside / "secret").read_bytes() != secret:
        problems.append("outside was changed")
    copied = [path for path in (folder / "out").glob("*") if path.name in ("tokenizer_x", "x.model")]
    return [*problems, *(f"copied {path.name}" for path in copied)], errors


def main():
    place, seconds, seed = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    only = int(sys.argv[4]) if len(sys.argv) > 4 else None
    torch.set_num_threads(1)
    tempfile.gettempdir()  # the first call writes a file, to try out the folder
    regard.native.library.available()
    outside, folder = place / "outside", place / "case"
    secret = (outside / "secret").read_bytes()
    end, codes, violations, number = time.monotonic() + seconds, Counter(), [], only or 0
    while time.monotonic() < end:
        draw = random.Random(f"{seed} {number}")
        command, description = prepare(draw, folder, outside)
        pid = os.fork()
        if not pid:
            child(command, folder, outside)
        status = wait(pid)
        problems, errors = judge(status, folder, outside, secret)
        codes[str(os.WEXITSTATUS(status)) if status is not None and os.WIFEXITED(status) else "killed"] += 1
        if problems:
            violations.append({"case": number, "what": description, "problems": problems, "stderr": errors[-600:]})
        if only is not None:
            sys.stderr.write(f"{description}\n{errors}\n")
            break
        shutil.rmtree(folder)
        number += 1
    print(json.dumps({"cases": number, "codes": codes, "violations": violations}))


if __name__ == "__main__":
    main()
