"""What is freed stays at hand, and what is not used again is let go."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.native.memory import MappedFiles

STEPS = """
import resource, sys
import torch
from regard.native.memory import keep_freed

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


COUNT = 4 << 20


def mapped_numbers(path):
    """16 MB of numbers in a file that is mapped, all of them read."""
    torch.arange(COUNT, dtype=torch.float32).numpy().tofile(path)
    mapped = torch.from_file(str(path), size=COUNT, dtype=torch.float32)
    assert mapped.sum(dtype=torch.float64) == COUNT * (COUNT - 1) / 2
    return mapped


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are not asked")
def test_what_is_let_go_leaves_memory_and_is_still_there(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "numbers").symlink_to(tmp_path / "blobs" / "numbers")  # as the hub's folders have it
    mapped = mapped_numbers(tmp_path / "blobs" / "numbers")
    before = held()
    assert MappedFiles(tmp_path / "folder").let_go(mapped)
    assert before - held() > 15 << 20
    assert torch.equal(mapped, torch.arange(COUNT, dtype=torch.float32))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are not asked")
def test_columns_of_a_matrix_are_let_go_with_what_is_between_them(tmp_path):
    mapped = mapped_numbers(tmp_path / "numbers").view(-1, 2048)
    before = held()
    assert MappedFiles(tmp_path).let_go(mapped[:, 512:1024].t())
    assert before - held() > 15 << 20


def test_only_what_is_mapped_from_these_files_is_let_go(tmp_path):
    (tmp_path / "here").mkdir()
    mapped, own, few = mapped_numbers(tmp_path / "numbers"), torch.ones(COUNT), torch.ones(3)
    here = MappedFiles(tmp_path / "here")
    assert not any(here.let_go(x) for x in (mapped, own, few))
    assert own.sum() == COUNT


def held():
    """Bytes of files that are in memory."""
    said = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in said if line.startswith("RssFile"))


SHAPES = """
import ctypes
import torch
from regard.native.memory import keep_few_kernels

if %s:
    keep_few_kernels()
class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "a b c d e f g used free top".split()]
told = ctypes.CDLL(None).mallinfo2
told.restype = Heap
def some(begin):
    for size in range(begin, begin + 250):
        torch.nn.functional.gelu(torch.ones(size, 16))
some(1000)
before = told().used
some(2000)
print(told().used - before)
"""


def growth(few):
    environment = {key: value for key, value in os.environ.items() if "PRIMITIVE_CACHE" not in key}
    run = [sys.executable, "-c", SHAPES % few]
    return int(subprocess.run(run, env=environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc's malloc is meant")
def test_what_was_compiled_for_shapes_that_do_not_come_again_is_let_go():
    if growth(few=False) < 1 << 20:
        pytest.skip("this machine's torch compiles nothing for a shape")
    assert growth(few=True) < 1 << 19
