"""The native KV cache against the one of `regard.transformer`."""

import math
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.engine import kv_cache
from regard.engine.kv_cache import NativeCache, NativeLayerKVCache
from regard.native import arena
from regard.native.library import available
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache, LayerKVCache, RowPermutation

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not available")

HEADS, DIM = 3, 5
STEPS = st.lists(st.sampled_from(["append", "keep", "spread", "add", "take"]), max_size=9)


def append(rng, generator, *every, count, dim=DIM):
    """Append the same random tokens to each cache."""
    rows = BatchLayout.of([rng.randint(1, 9) for _ in range(count)])
    key, value = torch.randn(2, rows.num_tokens, HEADS, dim, generator=generator)
    for one in every:
        one.append(key, value, rows)


def reordered(one, order):
    one.reorder(RowPermutation(order, len(one.lengths), torch.device("cpu")))


@pytest.mark.parametrize("small", [0, kv_cache.DENSE_MMAP_BYTES])
@given(seed=st.integers(0, 10**6), steps=STEPS)
@settings(max_examples=60)
def test_whatever_is_done_the_same_is_kept(small, seed, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "DENSE_MMAP_BYTES", small)  # with 0, all cache tensors have their own mmap
        patch.setattr(kv_cache, "SPARSE_MMAP_BYTES", small)
        patch.setattr(kv_cache, "SMALL_CAPACITY", 5)
        patch.setattr(kv_cache, "LARGE_CAPACITY", 12)  # so that rows grow past both
        rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        reference, native = LayerKVCache(), NativeLayerKVCache()
        append(rng, generator, reference, native, count=rng.randint(1, 4))
        for step in steps:
            count = len(reference.lengths)
            match step:
                case "append":
                    append(rng, generator, reference, native, count=count)
                case "keep":
                    order = [rng.randrange(count) for _ in range(rng.randint(1, count))]
                    reordered(reference, order), reordered(native, order)
                case "spread":
                    order = [row for row in range(min(count, 6)) for _ in range(2)]
                    reordered(reference, order), reordered(native, order)
                case "add":
                    other_caches = LayerKVCache(), NativeLayerKVCache()
                    append(rng, generator, *other_caches, count=rng.randint(1, 3))
                    reference.append_rows(other_caches[0]), native.append_rows(other_caches[1])
                case "take":
                    chosen = [rng.randrange(count) for _ in range(rng.randint(1, 3))]
                    reference, native = reference.take(chosen), native.take(chosen)
            assert native.lengths == reference.lengths
            for row, length in enumerate(reference.lengths):
                assert torch.equal(native.key[row, :, :length], reference.key[row, :, :length])
                assert torch.equal(native.value[row, :, :length], reference.value[row, :, :length])


class Both:
    """A reference cache and a native one with the same content, of two layers with cross-attention. Two positions fill
    a page: rows have several pages, which they release when they leave."""

    dim = arena.PAGE_BYTES // 8

    def __init__(self, seed, count):
        self.rng, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.reference, self.native = Cache(2), NativeCache(2)
        self.append(count)
        for mine in zip(self.reference.cross_layers, self.native.cross_layers, strict=True):
            append(random.Random(seed), self.generator, *mine, count=count, dim=self.dim)

    @property
    def count(self):
        return len(self.reference.lengths)

    def append(self, count):
        lengths = self.rng.randint(1, 9)
        for mine in zip(self.reference.layers, self.native.layers, strict=True):
            append(random.Random(lengths), self.generator, *mine, count=count, dim=self.dim)

    def both(self, name, *args):
        return [getattr(cache, name)(*args) for cache in (self.reference, self.native)]

    def check(self):
        assert self.native.lengths == self.reference.lengths
        layers = [(*cache.layers, *cache.cross_layers) for cache in (self.reference, self.native)]
        tables = (*self.native.layer_views, *self.native.cross_layer_views)
        for reference, native, at in zip(*layers, tables, strict=True):
            assert (native.lengths, at.key) == (reference.lengths, native.key.data_ptr())
            for row, length in enumerate(reference.lengths):
                assert torch.equal(native.key[row, :, :length], reference.key[row, :, :length])
                assert torch.equal(native.value[row, :, :length], reference.value[row, :, :length])


@given(
    seed=st.integers(0, 10**6), steps=st.lists(st.sampled_from(["append", "keep", "leave", "spread", "add", "take"]))
)
@settings(max_examples=100)
def test_a_whole_cache_keeps_the_same(seed, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "SMALL_CAPACITY", 5)
        patch.setattr(kv_cache, "LARGE_CAPACITY", 12)
        patch.setattr(kv_cache, "SPARSE_MMAP_BYTES", 0)
        rng, found, copies = random.Random(seed), Both(seed, 5), 1
        for step in steps:
            texts = found.count // copies
            match step:
                case "append":
                    found.append(found.count)
                case "keep":
                    order = [rng.randrange(texts) * copies for _ in range(rng.randint(1, texts))]
                    found.both("reorder", [text + rng.randrange(copies) for text in order for _ in range(copies)])
                case "leave":  # some sequences; the last ones take their rows, as in a batch
                    order = list(range(texts))
                    for _ in range(rng.randint(0, texts - 1)):
                        order[rng.randrange(len(order))] = order[-1]
                        order.pop()
                    found.both("reorder", [text * copies + copy for text in order for copy in range(copies)])
                case "spread" if copies == 1:
                    found.both("repeat_interleave", 3)
                    copies = 3
                case "add":
                    new = Both(seed + 1, 4)
                    rows = rng.choice([None, [2], [3, 0], range(2, 4), []])
                    if rows is None and copies > 1 and rng.random() < 0.5:  # repeated before
                        new.both("repeat_interleave", copies)
                        found.reference.append_rows(new.reference), found.native.append_rows(new.native)
                        found.check()
                        continue
                    found.reference.append_rows(new.reference, rows, copies)
                    found.native.append_rows(new.native, rows, copies)
                case "take" if copies == 1:
                    found.reference, found.native = found.both("take", [rng.randrange(texts) for _ in range(2)])
            found.check()


def test_a_line_that_gave_back_its_pages_gets_all_of_a_row():
    """Two beams share a prefix of several pages; the longer one is overwritten, while another sequence leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "SMALL_CAPACITY", 1)
        patch.setattr(kv_cache, "SPARSE_MMAP_BYTES", 0)
        found = Both(1, 2)
        found.append(2)
        found.both("repeat_interleave", 2)
        rows = BatchLayout.of([9, 1, 1, 1])
        for mine in zip(found.reference.layers, found.native.layers, strict=True):
            key, value = torch.randn(2, rows.num_tokens, HEADS, found.dim, generator=found.generator)
            for one in mine:
                one.append(key, value, rows)
        assert found.native.layers[0].capacity >= kv_cache.LARGE_CAPACITY
        found.both("reorder", [1, 1])
        found.check()


def test_rows_that_are_not_there_are_refused():
    found = Both(1, 3).native
    for wrong in (lambda: found.take([-1]), lambda: found.take([3]), lambda: found.reorder([0, -1])):
        with pytest.raises(IndexError):
            wrong()
    found.repeat_interleave(2)
    other = Both(2, 2).native
    for wrong in (
        lambda: found.reorder([0, 1, 6, 7]),
        lambda: found.reorder([0, 1, -2, -1]),
        lambda: found.reorder([0, 1, 10**9, 10**9 + 1]),
        lambda: found.append_rows(other, [10**9], 2),
        lambda: found.append_rows(other, [0, -1], 2),
    ):
        before = found.lengths
        with pytest.raises(IndexError, match="row index out of range"):
            wrong()
        assert found.lengths == before


def test_rows_can_be_spread_again():
    found = Both(1, 3)
    for copies in (2, 1, 3):
        found.both("repeat_interleave", copies)
        found.append(found.count)
        found.check()
    found.both("reorder", [5, 0, 3, 1, 2, 4, 11, 6, 9, 7, 8, 10])
    found.check()


def test_rows_of_a_cache_in_other_numbers_are_added():
    generator, mine, other = torch.Generator().manual_seed(1), NativeLayerKVCache(), LayerKVCache()
    for one, kind in ((mine, torch.bfloat16), (other, torch.float32)):
        key, value = torch.randn(2, 5, HEADS, DIM, generator=generator).bfloat16().to(kind)
        one.append(key, value, BatchLayout.of([2, 3]))
    mine.append_rows(other)
    assert mine.lengths == (2, 3, 2, 3)
    assert torch.equal(mine.key[3, :, :3], other.key[1, :, :3].bfloat16())
    assert torch.equal(mine.value[2, :, :2], other.value[0, :, :2].bfloat16())


def test_places_that_are_not_filled_take_no_memory():
    """One row of a hundred is long; the other_caches use no memory for it."""
    before = resident_bytes()
    found = arena.allocate_sparse((100, 4, 4096, 32), torch.float32, arena.SPARSE_MMAP_BYTES)
    found[:, :, :8] = 1
    found[0] = 1
    assert resident_bytes() - before < 20e6 < found.nbytes


def with_garbage(key, value):
    """Return a cache with rows of 1, 3 and 2 tokens and NaN after their ends."""
    with torch.inference_mode():
        found = NativeLayerKVCache()
        found.append(key, value, BatchLayout.of([1, 3, 2]))
        for line, length in enumerate([1, 3, 2]):
            found.key[line, :, length:] = found.value[line, :, length:] = math.nan
    return found


def test_behind_short_rows_torch_finds_numbers():
    """The memory of a cache is uninitialized, and 0 · NaN is NaN, so `view` sets it to 0. It may be called outside of
    inference mode."""
    key, value = torch.randn(2, 6, HEADS, DIM)
    keys, values, filled = with_garbage(key, value).view(slice(0, 3))
    assert filled == 3
    for part, new in ((keys, key), (values, value)):
        assert torch.equal(part[1].transpose(0, 1), new[1:4])
        assert torch.equal(part[2, :, :2].transpose(0, 1), new[4:])
        assert not part[0, :, 1:].any()
        assert not part[2, :, 2:].any()


def test_a_plain_cache_takes_over_numbers_alone():
    mine, other = LayerKVCache(), with_garbage(*torch.randn(2, 6, HEADS, DIM))
    mine.append(*torch.randn(2, 4, HEADS, DIM), BatchLayout.of([2, 2]))
    mine.append_rows(other)
    assert mine.lengths == (2, 2, 1, 3, 2)
    assert torch.equal(mine.key[3, :, :3], other.key[1, :, :3])
    assert all(part.isfinite().all() for part in mine.view(slice(0, 5))[:2])


def test_a_cache_that_grows_takes_memory_as_far_as_rows_are_filled():
    """64 rows of 40 tokens in cache tensors with a capacity of 256, which are reached in two steps."""
    generator, found = torch.Generator().manual_seed(1), NativeLayerKVCache()
    before, capacities = resident_bytes(), set()
    for _ in range(40):
        key, value = torch.randn(2, 64, 8, 64, generator=generator)
        found.append(key, value, BatchLayout.of([1] * 64))
        capacities.add(found.capacity)
    filled = 2 * 64 * 8 * 40 * 64 * 4
    assert capacities == {1, kv_cache.SMALL_CAPACITY, kv_cache.LARGE_CAPACITY}
    assert resident_bytes() - before < 2 * filled < found.key.nbytes


def test_long_rows_that_leave_give_their_memory_back():
    """A long sequence leaves, a short one takes its row, and another enters the row that became free."""
    generator, cache, reference = torch.Generator().manual_seed(1), NativeCache(1), Cache(1)
    lengths = [3, 250, 5, 4]
    for _ in range(2):  # the second time the cache tensor has its own mmap
        rows = BatchLayout.of(lengths)
        key, value = torch.randn(2, rows.num_tokens, 64, 64, generator=generator)
        for one in (cache, reference):
            one.layers[0].append(key, value, rows)
    before = resident_bytes()
    for one in (cache, reference):
        one.reorder([0, 3, 2])
    gone = 2 * 64 * 500 * 64 * 4
    assert before - resident_bytes() > gone * 0.9
    new, entering = torch.randn(2, 7, 64, 64, generator=generator), BatchLayout.of([7])
    for one in (cache, reference):
        other = type(one)(1)
        other.layers[0].append(*new, entering)
        one.append_rows(other)
    mine, expected = cache.layers[0], reference.layers[0]
    assert mine.lengths == expected.lengths == (6, 8, 10, 7)
    for row, length in enumerate(mine.lengths):
        assert torch.equal(mine.key[row, :, :length], expected.key[row, :, :length])
        assert torch.equal(mine.value[row, :, :length], expected.value[row, :, :length])


def resident_bytes():
    """Return the resident anonymous memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
