"""Runs that are killed and resumed, each in a forked process, so that torch is imported only once.

python kill_and_resume.py FOLDER SEED POINTS    prints JSON: how often a run was killed, and which files differ
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # so that forked runs need not import it again

from regard.tasks.registry import TASKS
from regard.training.recipe.schema import load_recipe
from regard.training.run.run import run_training

CALLS = ("fsync", "rename", "mkdir", "rmdir", "unlink", "truncate", "replace")


def child(recipe, folder, kill_at_call):
    """Train in a forked process. With `kill_at_call` it kills itself at that call of the file system."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        torch.set_num_threads(1)
        os.dup2(os.open(folder.with_suffix(".err"), os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
        if kill_at_call is not None:
            kill_at(kill_at_call)
        run_training(load_recipe(recipe, tasks=TASKS), folder, resume=True)
        code = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def kill_at(calls):
    """Kill the process before or after the call with this number."""
    left = [calls]

    def wrap(real):
        def called(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            done = real(*args, **kwargs)
            if left[0] == 1 and calls % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return called

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def finish(recipe, folder):
    """Resume and train to the end."""
    _, status = os.waitpid(child(recipe, folder, None), 0)
    if status:
        raise SystemExit(f"the run failed: {folder.with_suffix('.err').read_text()}")


def result(folder):
    """Return all files of a run, except log and caches."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    kept = [path for path in files if "cache" not in path.parts and path.name not in ("log.txt",)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def main():
    place, draw, points = Path(sys.argv[1]), random.Random(int(sys.argv[2])), int(sys.argv[3])
    recipe = place / "recipe.toml"
    started = time.monotonic()
    finish(recipe, place / "whole")
    duration = time.monotonic() - started
    expected, killed, different, run = result(place / "whole"), [], [], 0
    while len(killed) < points:
        run += 1
        folder = place / f"run-{run}"
        for _ in range(min(5, points - len(killed))):
            by_call = draw.random() < 0.6
            pid = child(recipe, folder, draw.randint(1, 60) if by_call else None)
            if not by_call:
                time.sleep(draw.uniform(0, duration))
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if os.WIFSIGNALED(status):
                killed.append("call" if by_call else "time")
            elif status:
                raise SystemExit(f"the run failed: {folder.with_suffix('.err').read_text()}")
        finish(recipe, folder)
        found = result(folder)
        different += [f"run-{run}/{name}" for name in {*expected, *found} if expected.get(name) != found.get(name)]
    print(json.dumps({"killed": killed, "runs": run, "different": different, "files": sorted(expected)}))


if __name__ == "__main__":
    main()
