"""Keys and values as the compiled parts keep them, against the plain ones."""

import math
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.engine import kv_cache
from regard.engine.kv_cache import CompiledCache, CompiledKept
from regard.native import arena
from regard.native.library import available
from regard.transformer.batch_layout import Rows
from regard.transformer.cache import Cache, Kept, Moves

pytestmark = pytest.mark.skipif(not available(), reason="this machine has no compiled parts")

HEADS, DIM = 3, 5
STEPS = st.lists(st.sampled_from(["append", "keep", "spread", "add", "take"]), max_size=9)


def append(chance, generator, *every, count, dim=DIM):
    """The same tokens behind the rows of each."""
    rows = Rows.of([chance.randint(1, 9) for _ in range(count)])
    key, value = torch.randn(2, rows.tokens, HEADS, dim, generator=generator)
    for one in every:
        one.append(key, value, rows)


def reordered(one, order):
    one.reorder(Moves(order, len(one.lengths), torch.device("cpu")))


@pytest.mark.parametrize("small", [0, kv_cache.SMALL])
@given(seed=st.integers(0, 10**6), steps=STEPS)
@settings(max_examples=60)
def test_whatever_is_done_the_same_is_kept(small, seed, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "SMALL", small)  # with 0, all of it has pages of its own
        patch.setattr(kv_cache, "PAGES", small)
        patch.setattr(kv_cache, "FEW", 5)
        patch.setattr(kv_cache, "ROOM", 12)  # so that rows come to grow past both
        chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        plain, quick = Kept(), CompiledKept()
        append(chance, generator, plain, quick, count=chance.randint(1, 4))
        for step in steps:
            count = len(plain.lengths)
            match step:
                case "append":
                    append(chance, generator, plain, quick, count=count)
                case "keep":
                    order = [chance.randrange(count) for _ in range(chance.randint(1, count))]
                    reordered(plain, order), reordered(quick, order)
                case "spread":
                    order = [row for row in range(min(count, 6)) for _ in range(2)]
                    reordered(plain, order), reordered(quick, order)
                case "add":
                    others = Kept(), CompiledKept()
                    append(chance, generator, *others, count=chance.randint(1, 3))
                    plain.add(others[0]), quick.add(others[1])
                case "take":
                    chosen = [chance.randrange(count) for _ in range(chance.randint(1, 3))]
                    plain, quick = plain.take(chosen), quick.take(chosen)
            assert quick.lengths == plain.lengths
            for row, length in enumerate(plain.lengths):
                assert torch.equal(quick.key[row, :, :length], plain.key[row, :, :length])
                assert torch.equal(quick.value[row, :, :length], plain.value[row, :, :length])


class Both:
    """The keys and values of two layers, and of what they look at, in a plain cache and in a compiled one. Two of them
    fill a page: rows have several, which they give back when they leave."""

    dim = arena.PAGE // 8

    def __init__(self, seed, count):
        self.chance, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.plain, self.quick = Cache(2), CompiledCache(2)
        self.append(count)
        for mine in zip(self.plain.source, self.quick.source, strict=True):
            append(random.Random(seed), self.generator, *mine, count=count, dim=self.dim)

    @property
    def count(self):
        return len(self.plain.lengths)

    def append(self, count):
        lengths = self.chance.randint(1, 9)
        for mine in zip(self.plain.own, self.quick.own, strict=True):
            append(random.Random(lengths), self.generator, *mine, count=count, dim=self.dim)

    def both(self, name, *given):
        return [getattr(cache, name)(*given) for cache in (self.plain, self.quick)]

    def check(self):
        assert self.quick.lengths == self.plain.lengths
        layers = [(*cache.own, *cache.source) for cache in (self.plain, self.quick)]
        tables = (*self.quick.own_at, *self.quick.source_at)
        for plain, quick, at in zip(*layers, tables, strict=True):
            assert (quick.lengths, at.key) == (plain.lengths, quick.key.data_ptr())
            for row, length in enumerate(plain.lengths):
                assert torch.equal(quick.key[row, :, :length], plain.key[row, :, :length])
                assert torch.equal(quick.value[row, :, :length], plain.value[row, :, :length])


@given(
    seed=st.integers(0, 10**6), steps=st.lists(st.sampled_from(["append", "keep", "leave", "spread", "add", "take"]))
)
@settings(max_examples=100)
def test_a_whole_cache_keeps_the_same(seed, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "FEW", 5)
        patch.setattr(kv_cache, "ROOM", 12)
        patch.setattr(kv_cache, "PAGES", 0)
        chance, found, copies = random.Random(seed), Both(seed, 5), 1
        for step in steps:
            texts = found.count // copies
            match step:
                case "append":
                    found.append(found.count)
                case "keep":
                    order = [chance.randrange(texts) * copies for _ in range(chance.randint(1, texts))]
                    found.both("reorder", [text + chance.randrange(copies) for text in order for _ in range(copies)])
                case "leave":  # some texts; the last ones take their places, as in a batch
                    order = list(range(texts))
                    for _ in range(chance.randint(0, texts - 1)):
                        order[chance.randrange(len(order))] = order[-1]
                        order.pop()
                    found.both("reorder", [text * copies + copy for text in order for copy in range(copies)])
                case "spread" if copies == 1:
                    found.both("spread", 3)
                    copies = 3
                case "add":
                    new = Both(seed + 1, 4)
                    rows = chance.choice([None, [2], [3, 0], range(2, 4), []])
                    if rows is None and copies > 1 and chance.random() < 0.5:  # spread before
                        new.both("spread", copies)
                        found.plain.add(new.plain), found.quick.add(new.quick)
                        found.check()
                        continue
                    found.plain.add(new.plain, rows, copies)
                    found.quick.add(new.quick, rows, copies)
                case "take" if copies == 1:
                    found.plain, found.quick = found.both("take", [chance.randrange(texts) for _ in range(2)])
            found.check()


def test_a_line_that_gave_back_its_pages_gets_all_of_a_row():
    """Two beams begin alike, in several pages; the longer one makes room for the other, while another text leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "FEW", 1)
        patch.setattr(kv_cache, "PAGES", 0)
        found = Both(1, 2)
        found.append(2)
        found.both("spread", 2)
        rows = Rows.of([9, 1, 1, 1])
        for mine in zip(found.plain.own, found.quick.own, strict=True):
            key, value = torch.randn(2, rows.tokens, HEADS, found.dim, generator=found.generator)
            for one in mine:
                one.append(key, value, rows)
        assert found.quick.own[0].room >= kv_cache.ROOM
        found.both("reorder", [1, 1])
        found.check()


def test_rows_that_are_not_there_are_refused():
    found = Both(1, 3).quick
    for wrong in (lambda: found.take([-1]), lambda: found.take([3]), lambda: found.reorder([0, -1])):
        with pytest.raises(IndexError):
            wrong()
    found.spread(2)
    other = Both(2, 2).quick
    for wrong in (
        lambda: found.reorder([0, 1, 6, 7]),
        lambda: found.reorder([0, 1, -2, -1]),
        lambda: found.reorder([0, 1, 10**9, 10**9 + 1]),
        lambda: found.add(other, [10**9], 2),
    ):
        with pytest.raises(IndexError):
            wrong()


def test_rows_can_be_spread_again():
    found = Both(1, 3)
    for copies in (2, 1, 3):
        found.both("spread", copies)
        found.append(found.count)
        found.check()
    found.both("reorder", [5, 0, 3, 1, 2, 4, 11, 6, 9, 7, 8, 10])
    found.check()


def test_of_beams_that_part_late_only_the_end_is_copied():
    """Two beams of one text are alike in all but the last token: when one takes the other's place, no more is copied.
    What stands before is left as it is, even if somebody has changed it."""
    found = Both(1, 2)
    found.both("spread", 2)
    found.append(4)
    found.both("reorder", [0, 0, 2, 2])
    alike = found.quick.lengths[0]
    found.append(4)
    kept_now = found.quick.own[1]
    kept_now.key[1, :, :alike] = 7
    found.quick.reorder([0, 0, 2, 2])
    assert kept_now.key[1, :, :alike].eq(7).all()
    assert torch.equal(kept_now.key[1, :, alike : kept_now.lengths[0]], kept_now.key[0, :, alike : kept_now.lengths[0]])


def test_rows_of_a_cache_in_other_numbers_are_added():
    generator, mine, other = torch.Generator().manual_seed(1), CompiledKept(), Kept()
    for one, kind in ((mine, torch.bfloat16), (other, torch.float32)):
        key, value = torch.randn(2, 5, HEADS, DIM, generator=generator).bfloat16().to(kind)
        one.append(key, value, Rows.of([2, 3]))
    mine.add(other)
    assert mine.lengths == (2, 3, 2, 3)
    assert torch.equal(mine.key[3, :, :3], other.key[1, :, :3].bfloat16())
    assert torch.equal(mine.value[2, :, :2], other.value[0, :, :2].bfloat16())


def test_places_that_are_not_filled_take_no_memory():
    """One row of a hundred is long; the others do not pay for it."""
    before = held()
    found = arena.sparse((100, 4, 4096, 32), torch.float32, arena.PAGES)
    found[:, :, :8] = 1
    found[0] = 1
    assert held() - before < 20e6 < found.nbytes


def with_garbage(key, value):
    """A cache of rows of 1, 3 and 2 tokens, with what is no number behind them."""
    with torch.inference_mode():
        found = CompiledKept()
        found.append(key, value, Rows.of([1, 3, 2]))
        for line, length in enumerate([1, 3, 2]):
            found.key[line, :, length:] = found.value[line, :, length:] = math.nan
    return found


def test_behind_short_rows_torch_finds_numbers():
    """Nobody clears the memory of a cache, and 0 times what is no number is none. Whoever looks at it need not be in
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
    mine, other = Kept(), with_garbage(*torch.randn(2, 6, HEADS, DIM))
    mine.append(*torch.randn(2, 4, HEADS, DIM), Rows.of([2, 2]))
    mine.add(other)
    assert mine.lengths == (2, 2, 1, 3, 2)
    assert torch.equal(mine.key[3, :, :3], other.key[1, :, :3])
    assert all(part.isfinite().all() for part in mine.view(slice(0, 5))[:2])


def test_a_cache_that_grows_takes_memory_as_far_as_rows_are_filled():
    """64 rows of 40 tokens in rectangles for 256, and no more of them on the way there."""
    generator, found = torch.Generator().manual_seed(1), CompiledKept()
    before, rooms = held(), set()
    for _ in range(40):
        key, value = torch.randn(2, 64, 8, 64, generator=generator)
        found.append(key, value, Rows.of([1] * 64))
        rooms.add(found.room)
    filled = 2 * 64 * 8 * 40 * 64 * 4
    assert rooms == {1, kv_cache.FEW, kv_cache.ROOM}
    assert held() - before < 2 * filled < found.key.nbytes


def test_long_rows_that_leave_give_their_memory_back():
    """A long text leaves, a short one takes its place, and another enters the line that became free."""
    generator, cache, plain = torch.Generator().manual_seed(1), CompiledCache(1), Cache(1)
    lengths = [3, 250, 5, 4]
    for _ in range(2):  # the second time there is a rectangle with pages of its own
        rows = Rows.of(lengths)
        key, value = torch.randn(2, rows.tokens, 64, 64, generator=generator)
        for one in (cache, plain):
            one.own[0].append(key, value, rows)
    before = held()
    for one in (cache, plain):
        one.reorder([0, 3, 2])
    gone = 2 * 64 * 500 * 64 * 4
    assert before - held() > gone * 0.9
    new, entering = torch.randn(2, 7, 64, 64, generator=generator), Rows.of([7])
    for one in (cache, plain):
        other = type(one)(1)
        other.own[0].append(*new, entering)
        one.add(other)
    mine, expected = cache.own[0], plain.own[0]
    assert mine.lengths == expected.lengths == (6, 8, 10, 7)
    for row, length in enumerate(mine.lengths):
        assert torch.equal(mine.key[row, :, :length], expected.key[row, :, :length])
        assert torch.equal(mine.value[row, :, :length], expected.value[row, :, :length])


def held():
    """Bytes of memory that are this process's own."""
    said = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in said if line.startswith("RssAnon"))
