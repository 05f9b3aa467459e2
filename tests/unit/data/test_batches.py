"""Batches: every row once an epoch, within the budget, in an order that the seed fixes, from any step at once."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.data.file_fixtures import many
from unit.data.tiny_tokenizers import Lengths
from unit.transformer.small_networks import RELATIVE, close, decoder_only, shared, text

from regard.data.batches import Batches, ByLength, Packed, TooLong
from regard.data.document_packing import pieces
from regard.data.epoch_plan import below, shuffled
from regard.transformer.mask import Documents

LENGTH = st.integers(1, 40)
PAIRS = st.lists(st.tuples(LENGTH, LENGTH), min_size=1, max_size=120)
SEEDS = st.integers(0, 2**64 - 1)


def corpus(pairs):
    return Lengths(source=[one for one, _ in pairs], target=[other for _, other in pairs])


def some(count, seed=0):
    """Lengths as sentences have them, the two sides alike."""
    generator = np.random.default_rng(seed)
    source = np.maximum(1, generator.lognormal(2.6, 0.4, count)).astype(int)
    return list(zip(source.tolist(), np.maximum(1, source + generator.integers(-3, 4, count)).tolist(), strict=True))


@given(pairs=PAIRS, tokens=st.integers(40, 400), seed=SEEDS, epoch=st.integers(0, 10**6))
@many
def test_every_row_once_within_the_budget(pairs, tokens, seed, epoch):
    whole = corpus(pairs)
    batches = Batches(whole, ByLength(tokens), seed=seed)
    found = list(batches.epoch(epoch))
    assert sorted(np.concatenate([batch.indices for batch in found])) == list(range(len(pairs)))
    assert len(found) == batches.steps(epoch)
    for step, batch in enumerate(found):
        assert (batch.epoch, batch.step) == (epoch, step)
        for name, side in (("source", 0), ("target", 1)):
            column = batch[name]
            assert column.rows.lengths == tuple(pairs[index][side] for index in batch.indices)
            assert column.tokens.tolist() == [token for i in batch.indices for token in whole.columns[name][i]]
            assert column.rows.batch * column.rows.longest <= tokens


@given(pairs=PAIRS, seed=SEEDS)
@many
def test_padded_rows_are_the_rows_filled_up(pairs, seed):
    whole = corpus(pairs)
    for batch in Batches(whole, ByLength(200), seed=seed):
        padded = batch["source"].padded(fill=-1)
        for row, index in zip(padded.tolist(), batch.indices, strict=True):
            assert row == [*whole.columns["source"][index], *[-1] * (len(row) - pairs[index][0])]


@given(pairs=PAIRS, seed=SEEDS, epoch=st.integers(0, 5), data=st.data())
@many
def test_the_stream_can_begin_anywhere(pairs, seed, epoch, data):
    arrangement = ByLength(100)
    step = data.draw(st.integers(0, Batches(corpus(pairs), arrangement, seed=seed).steps(epoch)))
    from_start = Batches(corpus(pairs), arrangement, seed=seed).at(0, 0)
    later = Batches(corpus(pairs), arrangement, seed=seed).at(epoch, step)
    expected = next(batch for batch in from_start if (batch.epoch, batch.step) >= (epoch, step))
    for _ in range(5):
        found = next(later)
        assert (found.epoch, found.step) == (expected.epoch, expected.step)
        assert found.indices.tolist() == expected.indices.tolist()
        assert found["source"].tokens.tolist() == expected["source"].tokens.tolist()
        expected = next(from_start)


class Counting:
    """An array that counts what is read of it."""

    def __init__(self, values):
        self.values, self.read = values, 0

    def __getitem__(self, part):
        self.read += part.stop - part.start
        return self.values[part]


def test_nothing_is_read_on_the_way_to_a_step():
    whole = corpus(some(5000))
    batches = Batches(whole, ByLength(1000), seed=3)
    counters = {name: Counting(column.values) for name, column in whole.columns.items()}
    for name, column in whole.columns.items():
        object.__setattr__(column, "values", counters[name])
    batch = next(batches.at(epoch=7, step=60))
    assert {name: counter.read for name, counter in counters.items()} == {
        name: len(batch[name].tokens) for name in counters
    }


def test_order_changes_with_seed_and_epoch_and_with_nothing_else():
    whole = corpus(some(2000))

    def order(seed, epoch):
        return np.concatenate(
            [batch.indices for batch in Batches(whole, ByLength(500), seed=seed).epoch(epoch)]
        ).tolist()

    np.random.seed(1)
    first = order(1, 0)
    np.random.seed(2)
    assert order(1, 0) == first
    others = [order(1, 1), order(2, 0), order(0, 1)]
    assert all(other != first for other in others)
    assert others[0] != others[2]


def test_shuffling_is_fair():
    """Each number comes to each place equally often: the expected count is 1000, its deviation about 30."""
    counts = np.zeros((5, 5))
    for epoch in range(5000):
        counts[np.arange(5), shuffled(5, 0, epoch, purpose=0)] += 1
    assert np.abs(counts - 1000).max() < 160


def test_batches_do_not_come_in_the_order_of_their_lengths():
    longest = [batch["source"].rows.longest for batch in Batches(corpus(some(3000)), ByLength(500)).epoch(0)]
    steps = np.sign(np.diff(longest))
    assert 0.3 < np.mean(steps > 0) < 0.7


def test_neighbours_are_alike():
    """With fewer rows than a real corpus has, and so with less choice, still little padding."""
    batches = Batches(corpus(some(20_000)), ByLength(2048))
    assert batches.waste() < 0.05
    pad = real = 0
    for batch in batches:
        for name in ("source", "target"):
            pad, real = pad + batch[name].padded().numel(), real + len(batch[name].tokens)
    assert batches.waste() == pytest.approx(1 - real / pad)


def test_rows_beyond_the_budget():
    whole = corpus([(5, 5), (50, 5), (5, 60), (20, 20)])
    with pytest.raises(ValueError, match=r"2 rows have more than 30 tokens, the longest 60 \(rows 1, 2\).*TooLong"):
        Batches(whole, ByLength(30))
    alone = Batches(whole, ByLength(30, TooLong.ALONE))
    found = [batch.indices.tolist() for batch in alone]
    assert [1] in found
    assert [2] in found
    assert sorted(index for batch in found for index in batch) == [0, 1, 2, 3]
    without = Batches(whole, ByLength(30, TooLong.SKIP))
    assert without.skipped.tolist() == [1, 2]
    assert sorted(index for batch in without for index in batch.indices) == [0, 3]


def test_what_would_never_end_or_begin_elsewhere_is_refused():
    with pytest.raises(ValueError, match="none of the 1 rows can be used"):
        Batches(corpus([(50, 5)]), ByLength(30, TooLong.SKIP))
    with pytest.raises(ValueError, match="none of the 2 rows can be used"):
        Batches(Lengths(tokens=[1, 1]), Packed())
    batches = Batches(corpus([(5, 5)] * 9), ByLength(10))
    assert next(batches.at(2, batches.steps(2))).epoch == 3
    with pytest.raises(IndexError, match="step 6 of epoch 2, which has 5 steps"):
        next(batches.at(2, 6))


# Packing


@given(lengths=st.lists(st.integers(0, 50), min_size=1, max_size=30), length=st.integers(2, 20), data=st.data())
@many
def test_every_token_but_the_first_is_predicted_once(lengths, length, data):
    moved = np.array([data.draw(st.integers(0, length - 2)) for _ in lengths])
    predicted = [[0] * count for count in lengths]
    for row, begin, end in zip(*pieces(np.array(lengths), length, moved), strict=True):
        assert 2 <= end - begin <= length
        for place in range(begin + 1, end):
            predicted[row][place] += 1
    assert predicted == [[0, *[1] * (count - 1)] if count else [] for count in lengths]


@given(
    lengths=st.lists(st.integers(1, 60), min_size=2, max_size=40).filter(lambda them: max(them) > 1),
    seed=SEEDS,
    epoch=st.integers(0, 9),
)
@many
def test_packed_batches_hold_all_pieces_and_are_full(lengths, seed, epoch):
    batches = Batches(Lengths(tokens=lengths), Packed(tokens=64, length=16), seed=seed)
    found = list(batches.epoch(epoch))
    sizes = [len(batch["tokens"].tokens) for batch in found]
    assert max(sizes, default=0) <= 64
    assert all(size > 64 - 16 for size in sizes[:-1])  # the next piece had no room
    moved = below(15, len(lengths), seed, epoch, purpose=1) if epoch else 0
    rows, begins, ends = pieces(np.array(lengths), 16, moved)
    first = np.cumsum(lengths) - lengths  # of each document, in a corpus whose values count its tokens
    there = [piece.tolist() for batch in found for piece in batch["tokens"].tokens.split(batch["tokens"].rows.lengths)]
    assert sorted(there) == sorted(
        list(range(first[row] + begin, first[row] + end)) for row, begin, end in zip(rows, begins, ends, strict=True)
    )
    assert sorted(index for batch in found for index in batch.indices) == sorted(rows)
    assert batches.skipped.tolist() == [row for row, count in enumerate(lengths) if count == 1]


def test_long_documents_are_cut_elsewhere_in_each_epoch_and_short_ones_never():
    batches = Batches(Lengths(tokens=[100, 9, 16, 2]), Packed(tokens=128, length=16), seed=3)
    starts = []
    for epoch in range(150):
        found = [
            piece
            for batch in batches.epoch(epoch)
            for piece in batch["tokens"].tokens.split(list(batch["tokens"].rows.lengths))
        ]
        starts.append(min(len(piece) for piece in found if piece[0] == 0))
        assert {9, 16, 2} <= {len(piece) for piece in found if piece[0] >= 100}
    assert starts[0] == 16  # the validation data is always read as in epoch 0
    assert set(starts) == set(range(2, 17)), "every place to cut comes up"


def test_what_cannot_be_packed():
    with pytest.raises(ValueError, match=r"only plain text can be packed.*source, target"):
        Batches(corpus([(5, 5)]), Packed())
    with pytest.raises(ValueError, match="at least 2 tokens"):
        Packed(tokens=10, length=1)
    with pytest.raises(ValueError, match="fit into a batch"):
        Packed(tokens=10, length=11)


@pytest.mark.parametrize("position", RELATIVE)
@torch.no_grad()
def test_nothing_attends_across_documents(position):
    """A packed batch gives what each piece gives alone, and what the mask that keeps documents apart gives."""
    network = shared(decoder_only(position))
    (batch,) = Batches(Lengths(tokens=[3, 7, 2, 5, 6]), Packed(tokens=64, length=6), seed=5)
    rows = batch["tokens"].rows
    tokens = text(rows.tokens)
    packed = network(tokens, rows=rows).hidden
    close(packed, torch.cat([network(piece[None]).hidden[0] for piece in tokens.split(list(rows.lengths))]))
    close(packed, network(tokens[None], Documents(rows.row_of[None])).hidden[0])
