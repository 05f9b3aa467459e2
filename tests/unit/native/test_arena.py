"""Matrices in pieces of memory: apart from each other, and given back when nobody needs them."""

import gc

import pytest
import torch

from regard.native import arena

KINDS = pytest.mark.parametrize("dtype", [torch.float32, torch.int8])


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(arena, "_last", arena.Last())


@KINDS
def test_they_are_apart(dtype):
    found = [arena.room(size, dtype) for size in (1, 1000, 64, 33)]
    for number, one in enumerate(found):
        one.fill_(number + 1)
    assert [int(one.sum()) for one in found] == [size * (number + 1) for number, size in enumerate((1, 1000, 64, 33))]
    assert all(one.data_ptr() % arena.LINE == 0 and one.dtype == dtype for one in found)


def test_a_piece_is_filled_before_the_next(monkeypatch):
    monkeypatch.setattr(arena, "PIECE", 1 << 16)
    first, second, third = (arena.room(1 << 13, torch.float32) for _ in range(3))  # half a piece each
    assert second.data_ptr() == first.data_ptr() + (1 << 15)
    assert abs(third.data_ptr() - first.data_ptr()) >= 1 << 16


def test_what_is_larger_than_a_piece_has_its_own(monkeypatch):
    monkeypatch.setattr(arena, "PIECE", 1 << 16)
    assert arena.room(1 << 20, torch.int8).fill_(7).sum() == 7 << 20


def test_memory_is_given_back_with_the_last_matrix():
    one, other = arena.room(10, torch.int8), arena.room(10, torch.int8)
    piece = arena._last.memory
    del one
    gc.collect()
    assert piece() is not None
    del other
    gc.collect()
    assert piece() is None
    assert arena.room(10, torch.int8).fill_(1).sum() == 10  # and there is a new one for those that come


class TestAgain:
    """Memory for what is made all the time."""

    def test_what_nobody_holds_is_used_again(self):
        again = arena.Again()
        first = again.room(1000, 400)
        place = first.data_ptr()
        other = again.room(1000, 400)
        assert other.data_ptr() != place
        del first
        assert again.room(900, 400).data_ptr() == place

    def test_a_part_that_somebody_holds_keeps_the_whole(self):
        again = arena.Again()
        part = again.room(1000, 400).fill_(7)[3:5]
        assert again.room(1000, 400).fill_(8).data_ptr() != part.data_ptr() - 3 * 400 * 4
        assert part.eq(7).all()

    def test_what_is_too_small_is_given_up(self):
        again = arena.Again()
        again.room(1000, 400)
        larger = again.room(2000, 400)
        assert [len(piece) for piece in again._pieces] == [larger.nbytes]

    def test_no_more_than_a_few_are_kept(self):
        again = arena.Again()
        held = [again.room(1000, 400).fill_(number) for number in range(9)]
        assert len(again._pieces) == again.several
        assert [int(one[0, 0]) for one in held] == list(range(9))

    def test_a_small_result_does_not_keep_a_large_piece(self):
        again = arena.Again()
        again.room(8000, 400)
        small = again.room(1000, 400)
        assert [len(piece) for piece in again._pieces] == [small.nbytes]

    @pytest.mark.parametrize("count", [10, arena.Again.most // 4 + 1])
    def test_small_and_very_large_ones_are_ordinary(self, count):
        again = arena.Again()
        assert again.room(count).shape == (count,)
        assert not again._pieces
