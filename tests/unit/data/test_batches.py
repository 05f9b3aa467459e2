"""Batches: every row once per epoch, within the token budget, in an order determined by the seed, from any step."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.data.file_fixtures import property_settings
from unit.data.tiny_tokenizers import LengthsCorpus
from unit.transformer.small_networks import RELATIVE, close, decoder_only, shared, text

from regard.data.batches import Batches, LengthBatching, OversizePolicy, PackedBatching
from regard.data.document_packing import chunk_documents
from regard.data.epoch_plan import random_integers, random_permutation
from regard.transformer.mask import Documents

LENGTH = st.integers(1, 40)
PAIRS = st.lists(st.tuples(LENGTH, LENGTH), min_size=1, max_size=120)
SEEDS = st.integers(0, 2**64 - 1)


def corpus(pairs):
    return LengthsCorpus(source=[source for source, _ in pairs], target=[target for _, target in pairs])


def sentence_lengths(count, seed=0):
    """Lengths distributed like those of sentences, similar on both sides."""
    generator = np.random.default_rng(seed)
    source = np.maximum(1, generator.lognormal(2.6, 0.4, count)).astype(int)
    return list(zip(source.tolist(), np.maximum(1, source + generator.integers(-3, 4, count)).tolist(), strict=True))


@given(pairs=PAIRS, tokens=st.integers(40, 400), seed=SEEDS, epoch=st.integers(0, 10**6))
@property_settings
def test_every_row_once_within_the_budget(pairs, tokens, seed, epoch):
    whole = corpus(pairs)
    batches = Batches(whole, LengthBatching(tokens), seed=seed)
    found = list(batches.epoch(epoch))
    assert sorted(np.concatenate([batch.indices for batch in found])) == list(range(len(pairs)))
    assert len(found) == batches.steps(epoch)
    for step, batch in enumerate(found):
        assert (batch.epoch, batch.step) == (epoch, step)
        for name, side in (("source", 0), ("target", 1)):
            column = batch[name]
            assert column.layout.lengths == tuple(pairs[index][side] for index in batch.indices)
            assert column.values.tolist() == [token for i in batch.indices for token in whole.columns[name][i]]
            assert column.layout.batch_size * column.layout.longest <= tokens


@given(pairs=PAIRS, seed=SEEDS)
@property_settings
def test_padded_rows_are_the_rows_filled_up(pairs, seed):
    whole = corpus(pairs)
    for batch in Batches(whole, LengthBatching(200), seed=seed):
        padded = batch["source"].to_padded(padding_value=-1)
        for row, index in zip(padded.tolist(), batch.indices, strict=True):
            assert row == [*whole.columns["source"][index], *[-1] * (len(row) - pairs[index][0])]


@given(pairs=PAIRS, seed=SEEDS, epoch=st.integers(0, 5), data=st.data())
@property_settings
def test_the_stream_can_begin_anywhere(pairs, seed, epoch, data):
    batching = LengthBatching(100)
    step = data.draw(st.integers(0, Batches(corpus(pairs), batching, seed=seed).steps(epoch)))
    from_start = Batches(corpus(pairs), batching, seed=seed).iter_from(0, 0)
    later = Batches(corpus(pairs), batching, seed=seed).iter_from(epoch, step)
    expected = next(batch for batch in from_start if (batch.epoch, batch.step) >= (epoch, step))
    for _ in range(5):
        found = next(later)
        assert (found.epoch, found.step) == (expected.epoch, expected.step)
        assert found.indices.tolist() == expected.indices.tolist()
        assert found["source"].values.tolist() == expected["source"].values.tolist()
        expected = next(from_start)


class Counting:
    """An array that counts the elements that are read."""

    def __init__(self, values):
        self.values, self.read = values, 0

    def __getitem__(self, part):
        self.read += part.stop - part.start
        return self.values[part]


def test_nothing_is_read_on_the_way_to_a_step():
    whole = corpus(sentence_lengths(5000))
    batches = Batches(whole, LengthBatching(1000), seed=3)
    counters = {name: Counting(column.values) for name, column in whole.columns.items()}
    for name, column in whole.columns.items():
        object.__setattr__(column, "values", counters[name])
    batch = next(batches.iter_from(epoch=7, step=60))
    assert {name: counter.read for name, counter in counters.items()} == {
        name: len(batch[name].values) for name in counters
    }


def test_order_changes_with_seed_and_epoch_and_with_nothing_else():
    whole = corpus(sentence_lengths(2000))

    def order(seed, epoch):
        return np.concatenate(
            [batch.indices for batch in Batches(whole, LengthBatching(500), seed=seed).epoch(epoch)]
        ).tolist()

    np.random.seed(1)
    first = order(1, 0)
    np.random.seed(2)
    assert order(1, 0) == first
    others = [order(1, 1), order(2, 0), order(0, 1)]
    assert all(other != first for other in others)
    assert others[0] != others[2]


def test_shuffling_is_fair():
    """Each number occurs at each position equally often: the expected count is 1000, its deviation about 30."""
    counts = np.zeros((5, 5))
    for epoch in range(5000):
        counts[np.arange(5), random_permutation(5, 0, epoch, purpose=0)] += 1
    assert np.abs(counts - 1000).max() < 160


def test_batches_do_not_come_in_the_order_of_their_lengths():
    longest = [
        batch["source"].layout.longest
        for batch in Batches(corpus(sentence_lengths(3000)), LengthBatching(500)).epoch(0)
    ]
    steps = np.sign(np.diff(longest))
    assert 0.3 < np.mean(steps > 0) < 0.7


def test_neighbours_are_alike():
    """Little padding, even with fewer rows than a real corpus has, and so with less choice."""
    batches = Batches(corpus(sentence_lengths(20_000)), LengthBatching(2048))
    assert batches.padding_ratio() < 0.05
    pad = real = 0
    for batch in batches:
        for name in ("source", "target"):
            pad, real = pad + batch[name].to_padded().numel(), real + len(batch[name].values)
    assert batches.padding_ratio() == pytest.approx(1 - real / pad)


def test_rows_beyond_the_budget():
    whole = corpus([(5, 5), (50, 5), (5, 60), (20, 20)])
    with pytest.raises(
        ValueError, match=r"2 rows exceed batch_tokens=30; the longest has 60 tokens \(rows 1, 2\).*Oversize"
    ):
        Batches(whole, LengthBatching(30))
    own_batches = Batches(whole, LengthBatching(30, OversizePolicy.OWN_BATCH))
    found = [batch.indices.tolist() for batch in own_batches]
    assert [1] in found
    assert [2] in found
    assert sorted(index for batch in found for index in batch) == [0, 1, 2, 3]
    without = Batches(whole, LengthBatching(30, OversizePolicy.SKIP))
    assert without.skipped_rows.tolist() == [1, 2]
    assert sorted(index for batch in without for index in batch.indices) == [0, 3]


def test_what_would_never_end_or_begin_elsewhere_is_refused():
    with pytest.raises(ValueError, match="all 1 rows were skipped"):
        Batches(corpus([(50, 5)]), LengthBatching(30, OversizePolicy.SKIP))
    with pytest.raises(ValueError, match="all 2 rows were skipped"):
        Batches(LengthsCorpus(tokens=[1, 1]), PackedBatching())
    batches = Batches(corpus([(5, 5)] * 9), LengthBatching(10))
    assert next(batches.iter_from(2, batches.steps(2))).epoch == 3
    with pytest.raises(IndexError, match="step 6 is out of range: epoch 2 has 5 steps"):
        next(batches.iter_from(2, 6))


# Packing


@given(lengths=st.lists(st.integers(0, 50), min_size=1, max_size=30), length=st.integers(2, 20), data=st.data())
@property_settings
def test_every_token_but_the_first_is_predicted_once(lengths, length, data):
    shift = np.array([data.draw(st.integers(0, length - 2)) for _ in lengths])
    predicted = [[0] * count for count in lengths]
    for row, start, end in zip(*chunk_documents(np.array(lengths), length, shift), strict=True):
        assert 2 <= end - start <= length
        for position in range(start + 1, end):
            predicted[row][position] += 1
    assert predicted == [[0, *[1] * (count - 1)] if count else [] for count in lengths]


@given(
    lengths=st.lists(st.integers(1, 60), min_size=2, max_size=40).filter(lambda them: max(them) > 1),
    seed=SEEDS,
    epoch=st.integers(0, 9),
)
@property_settings
def test_packed_batches_hold_all_pieces_and_are_full(lengths, seed, epoch):
    batches = Batches(LengthsCorpus(tokens=lengths), PackedBatching(batch_tokens=64, max_length=16), seed=seed)
    found = list(batches.epoch(epoch))
    sizes = [len(batch["tokens"].values) for batch in found]
    assert max(sizes, default=0) <= 64
    assert all(size > 64 - 16 for size in sizes[:-1])  # the next chunk did not fit
    shift = random_integers(15, len(lengths), seed, epoch, purpose=1) if epoch else 0
    rows, starts, ends = chunk_documents(np.array(lengths), 16, shift)
    offsets = (
        np.cumsum(lengths) - lengths
    )  # the first value of each document: the values of the corpus count its tokens
    chunks = [
        chunk.tolist() for batch in found for chunk in batch["tokens"].values.split(batch["tokens"].layout.lengths)
    ]
    assert sorted(chunks) == sorted(
        list(range(offsets[row] + start, offsets[row] + end))
        for row, start, end in zip(rows, starts, ends, strict=True)
    )
    assert sorted(index for batch in found for index in batch.indices) == sorted(rows)
    assert batches.skipped_rows.tolist() == [row for row, count in enumerate(lengths) if count == 1]


def test_long_documents_are_cut_elsewhere_in_each_epoch_and_short_ones_never():
    batches = Batches(LengthsCorpus(tokens=[100, 9, 16, 2]), PackedBatching(batch_tokens=128, max_length=16), seed=3)
    starts = []
    for epoch in range(150):
        found = [
            chunk
            for batch in batches.epoch(epoch)
            for chunk in batch["tokens"].values.split(list(batch["tokens"].layout.lengths))
        ]
        starts.append(min(len(chunk) for chunk in found if chunk[0] == 0))
        assert {9, 16, 2} <= {len(chunk) for chunk in found if chunk[0] >= 100}
    assert starts[0] == 16  # the validation data is always read as in epoch 0
    assert set(starts) == set(range(2, 17)), "every length of the first chunk occurs"


def test_what_cannot_be_packed():
    with pytest.raises(ValueError, match=r"PackedBatching needs a corpus with one column.*source, target"):
        Batches(corpus([(5, 5)]), PackedBatching())
    with pytest.raises(ValueError, match="max_length must be at least 2"):
        PackedBatching(batch_tokens=10, max_length=1)
    with pytest.raises(ValueError, match="at most batch_tokens"):
        PackedBatching(batch_tokens=10, max_length=11)


@pytest.mark.parametrize("position", RELATIVE)
@torch.no_grad()
def test_nothing_attends_across_documents(position):
    """A packed batch equals each chunk on its own, and equals the mask that separates documents."""
    network = shared(decoder_only(position))
    (batch,) = Batches(LengthsCorpus(tokens=[3, 7, 2, 5, 6]), PackedBatching(batch_tokens=64, max_length=6), seed=5)
    layout = batch["tokens"].layout
    tokens = text(layout.num_tokens)
    packed = network(tokens, layout=layout).hidden
    close(packed, torch.cat([network(chunk[None]).hidden[0] for chunk in tokens.split(list(layout.lengths))]))
    close(packed, network(tokens[None], Documents(layout.row_indices[None])).hidden[0])
