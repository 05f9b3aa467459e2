"""Weights in arenas: they do not overlap, and arenas are released with their last tensor."""

import gc

import pytest
import torch

from regard.native import arena

KINDS = pytest.mark.parametrize("dtype", [torch.float32, torch.int8])


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(arena, "_current", arena.CurrentArena())


@KINDS
def test_they_are_apart(dtype):
    found = [arena.allocate(size, dtype) for size in (1, 1000, 64, 33)]
    for number, one in enumerate(found):
        one.fill_(number + 1)
    assert [int(one.sum()) for one in found] == [size * (number + 1) for number, size in enumerate((1, 1000, 64, 33))]
    assert all(one.data_ptr() % arena.CACHE_LINE_BYTES == 0 and one.dtype == dtype for one in found)


def test_an_arena_is_filled_before_the_next(monkeypatch):
    monkeypatch.setattr(arena, "ARENA_BYTES", 1 << 16)
    first, second, third = (arena.allocate(1 << 13, torch.float32) for _ in range(3))  # half an arena each
    assert second.data_ptr() == first.data_ptr() + (1 << 15)
    assert abs(third.data_ptr() - first.data_ptr()) >= 1 << 16


def test_a_tensor_larger_than_an_arena_has_its_own(monkeypatch):
    monkeypatch.setattr(arena, "ARENA_BYTES", 1 << 16)
    assert arena.allocate(1 << 20, torch.int8).fill_(7).sum() == 7 << 20


def test_memory_is_released_with_the_last_tensor():
    one, other = arena.allocate(10, torch.int8), arena.allocate(10, torch.int8)
    memory = arena._current.memory
    del one
    gc.collect()
    assert memory() is not None
    del other
    gc.collect()
    assert memory() is None
    assert arena.allocate(10, torch.int8).fill_(1).sum() == 10  # in a new arena
