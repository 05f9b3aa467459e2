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


class TestScratchPool:
    """Memory for tensors that are allocated at every step."""

    def test_an_unreferenced_buffer_is_reused(self):
        pool = arena.ScratchPool()
        first = pool.empty(1000, 400)
        address = first.data_ptr()
        other = pool.empty(1000, 400)
        assert other.data_ptr() != address
        del first
        assert pool.empty(900, 400).data_ptr() == address

    def test_a_referenced_view_keeps_the_buffer(self):
        pool = arena.ScratchPool()
        part = pool.empty(1000, 400).fill_(7)[3:5]
        assert pool.empty(1000, 400).fill_(8).data_ptr() != part.data_ptr() - 3 * 400 * 4
        assert part.eq(7).all()

    def test_a_buffer_that_is_too_small_is_dropped(self):
        pool = arena.ScratchPool()
        pool.empty(1000, 400)
        larger = pool.empty(2000, 400)
        assert [len(buffer) for buffer in pool._buffers] == [larger.nbytes]

    def test_the_number_of_buffers_is_limited(self):
        pool = arena.ScratchPool()
        held = [pool.empty(1000, 400).fill_(number) for number in range(9)]
        assert len(pool._buffers) == pool.max_buffers
        assert [int(one[0, 0]) for one in held] == list(range(9))

    def test_a_small_result_does_not_keep_a_large_buffer(self):
        pool = arena.ScratchPool()
        pool.empty(8000, 400)
        small = pool.empty(1000, 400)
        assert [len(buffer) for buffer in pool._buffers] == [small.nbytes]

    @pytest.mark.parametrize("count", [10, arena.ScratchPool.max_bytes // 4 + 1])
    def test_small_and_very_large_ones_are_ordinary(self, count):
        pool = arena.ScratchPool()
        assert pool.empty(count).shape == (count,)
        assert not pool._buffers
