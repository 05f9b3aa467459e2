"""What is freed stays at hand: large blocks that come and go at every step cost no page faults."""

import os
import subprocess
import sys

import pytest

STEPS = """
import resource, sys
import torch
from regard.engine.memory import keep_freed

told = keep_freed()
def step():
    blocks = [torch.empty(2 << 20).fill_(1.0) for _ in range(5)]
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment):
    run = [sys.executable, "-c", STEPS]
    told, count = subprocess.run(
        run, env={**os.environ, **environment}, check=True, capture_output=True, text=True
    ).stdout.split()
    return told == "True", int(count)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is meant")
def test_blocks_that_come_and_go_are_not_cleared_again():
    told, count = faults()
    if not told:
        pytest.skip("this C library has no mallopt")
    assert count < 1000  # 10 steps of 40 MB: 100,000 pages


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is meant")
def test_who_starts_the_process_decides():
    told, count = faults(MALLOC_TRIM_THRESHOLD_="131072")
    assert not told
    assert count > 10_000
