"""Freed memory is retained for reuse; mapped weights and cached kernels are released."""

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
from regard.native.memory import retain_freed_memory

accepted = retain_freed_memory()
def step():
    blocks = [torch.empty(2 << 20).fill_(1.0) for _ in range(5)]
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(accepted, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment):
    run = [sys.executable, "-c", STEPS]
    accepted, count = subprocess.run(
        run, env={**os.environ, **environment}, check=True, capture_output=True, text=True
    ).stdout.split()
    return accepted == "True", int(count)


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc's malloc")
def test_reused_blocks_are_not_zeroed_again():
    accepted, count = faults()
    if not accepted:
        pytest.skip("this C library has no mallopt")
    assert count < 1000  # 10 steps of 40 MB: 100,000 pages


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc's malloc")
def test_the_environment_takes_precedence():
    accepted, count = faults(MALLOC_TRIM_THRESHOLD_="131072")
    assert not accepted
    assert count > 10_000


COUNT = 4 << 20


def mapped_numbers(path):
    """Return 16 MB of memory-mapped values, all of them in memory."""
    torch.arange(COUNT, dtype=torch.float32).numpy().tofile(path)
    mapped = torch.from_file(str(path), size=COUNT, dtype=torch.float32)
    assert mapped.sum(dtype=torch.float64) == COUNT * (COUNT - 1) / 2
    return mapped


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and madvise of Linux")
def test_released_weights_leave_memory_and_can_be_read_again(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "numbers").symlink_to(
        tmp_path / "blobs" / "numbers"
    )  # as in the folders of the Hugging Face hub
    mapped = mapped_numbers(tmp_path / "blobs" / "numbers")
    before = resident_file_bytes()
    assert MappedFiles(tmp_path / "folder").release(mapped)
    assert before - resident_file_bytes() > 15 << 20
    assert torch.equal(mapped, torch.arange(COUNT, dtype=torch.float32))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and madvise of Linux")
def test_columns_of_a_matrix_are_released_with_the_gaps_between_them(tmp_path):
    mapped = mapped_numbers(tmp_path / "numbers").view(-1, 2048)
    before = resident_file_bytes()
    assert MappedFiles(tmp_path).release(mapped[:, 512:1024].t())
    assert before - resident_file_bytes() > 15 << 20


def test_only_tensors_that_are_mapped_from_these_files_are_released(tmp_path):
    (tmp_path / "here").mkdir()
    mapped, own, few = mapped_numbers(tmp_path / "numbers"), torch.ones(COUNT), torch.ones(3)
    here = MappedFiles(tmp_path / "here")
    assert not any(here.release(x) for x in (mapped, own, few))
    assert own.sum() == COUNT


def resident_file_bytes():
    """Return the resident memory of mapped files, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssFile"))


SHAPES = """
import ctypes
import torch
from regard.native.memory import limit_onednn_cache

if %s:
    limit_onednn_cache()
class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "a b c d e f g used free top".split()]
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Heap
def run_shapes(start):
    for size in range(start, start + 250):
        torch.nn.functional.gelu(torch.ones(size, 16))
run_shapes(1000)
before = mallinfo().used
run_shapes(2000)
print(mallinfo().used - before)
"""


def growth(limited):
    environment = {key: value for key, value in os.environ.items() if "PRIMITIVE_CACHE" not in key}
    run = [sys.executable, "-c", SHAPES % limited]
    return int(subprocess.run(run, env=environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc's malloc")
def test_kernels_of_old_shapes_are_released():
    if growth(limited=False) < 1 << 20:
        pytest.skip("this torch does not compile kernels for shapes")
    assert growth(limited=True) < 1 << 19
