"""Results with a cache equal those without, while rows are appended, dropped, copied and reordered."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.small_networks import (
    BLOCK,
    POSITIONS,
    WORDS,
    chances,
    close,
    decoder_only,
    encoder_decoder,
    examples,
    made,
    numbers,
    packed,
    shared,
    text,
)

from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache, LayerKVCache
from regard.transformer.head_base import LogitsAt
from regard.transformer.mask import Band, Causal, Documents, Everything, Explicit, Padding, Prefix, Window


class Running:
    """A running batch with a cache, and the complete tokens of each sequence so far."""

    def __init__(self, network, batch, seed):
        self.network, self.cache = network, network.new_cache()
        self.texts = [text(0) for _ in range(batch)]
        self.translates = hasattr(network, "encoder")
        self.sources = [text(1 + (row + seed) % 4, seed=seed + row) for row in range(batch)]

    def step(self, lengths, seed):
        """Append new tokens to every sequence, and compare with a run of each sequence alone, without a cache."""
        new = [text(length, seed=seed + row) for row, length in enumerate(lengths)]
        self.texts = [torch.cat(pair) for pair in zip(self.texts, new, strict=True)]
        tokens, layout = packed(new)
        with torch.no_grad():
            if self.translates:
                sources, source_layout = packed(self.sources)
                source = self.network.encode(sources, layout=source_layout)
                found = self.network(source, tokens, target_layout=layout, cache=self.cache).hidden
            else:
                found = self.network(tokens, layout=layout, cache=self.cache).hidden
            alone = [self.alone(row)[-length:] for row, length in enumerate(lengths)]
        close(found, torch.cat(alone))
        assert self.cache.lengths == tuple(len(row) for row in self.texts)

    def alone(self, row):
        if self.translates:
            return self.network(self.sources[row][None], self.texts[row][None]).hidden[0]
        return self.network(self.texts[row][None]).hidden[0]

    def keep(self, order):
        self.texts = [self.texts[row] for row in order]
        self.sources = [self.sources[row] for row in order]

    def add(self, other):
        self.cache.append_rows(other.cache)
        self.texts += other.texts
        self.sources += other.sources

    def take(self, order):
        selected = copy.copy(self)
        selected.cache = self.cache.take(order)
        selected.keep(order)
        return selected


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("make", [decoder_only, encoder_decoder], ids=["decoder", "both"])
@given(data=st.data())
@examples(3)
def test_texts_that_grow_leave_enter_and_are_copied_are_each_as_if_alone(position, make, data):
    def lengths(batch):
        return data.draw(st.lists(st.integers(1, 3), min_size=batch, max_size=batch))

    network = shared(make(position))
    running = Running(network, data.draw(st.integers(1, 3)), seed=0)
    running.step(lengths(len(running.texts)), seed=10)
    for turn, change in enumerate(data.draw(st.lists(st.sampled_from(["drop", "reorder", "add"]), max_size=3))):
        batch = range(len(running.texts))
        if change == "drop":
            dropped = data.draw(st.sets(st.sampled_from(batch), max_size=len(batch) - 1))
            rest = [row for row in batch if row not in dropped]
            running.cache.reorder(rest)
            running.keep(rest)
        elif change == "reorder":
            order = data.draw(st.lists(st.sampled_from(batch), min_size=1, max_size=4))
            running.cache.reorder(order)
            running.keep(order)
        else:
            entering = Running(network, data.draw(st.integers(1, 2)), seed=100 + turn)
            entering.step(lengths(len(entering.texts)), seed=200 + turn)
            running.add(entering)
        running.step(lengths(len(running.texts)), seed=1000 * (turn + 1))


@pytest.mark.parametrize("make", [decoder_only, encoder_decoder], ids=["decoder", "both"])
def test_rows_that_are_taken_apart_and_those_they_leave_go_on_each_for_itself(make):
    running = Running(shared(make("learned")), 4, seed=0)
    running.step([2, 1, 3, 1], seed=10)
    selected = running.take([3, 1])
    running.cache.reorder([0, 2])
    running.keep([0, 2])
    selected.step([1, 2], seed=20)
    running.step([1, 1], seed=30)
    running.add(selected)  # into the rows of dropped sequences
    running.step([1, 2, 1, 1], seed=40)


def test_rows_that_share_a_source_are_not_taken_apart():
    running = Running(shared(encoder_decoder("learned")), 1, seed=0)
    running.step([1], seed=10)
    running.cache.repeat_interleave(2)
    with pytest.raises(ValueError, match=r"take\(\) needs one row per source; this cache was expanded to 2"):
        running.cache.take([0])


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_token_by_token_for_long_enough_that_the_rectangle_grows(position):
    network, tokens = shared(decoder_only(position)), text(2, 32)
    cache = network.new_cache()
    steps = [network(token, cache=cache).hidden for token in tokens.split(1, dim=1)]
    close(torch.cat(steps, dim=1), network(tokens).hidden)


@pytest.mark.parametrize("position", POSITIONS)
def test_lengths_that_look_like_the_bounds_of_rows(position):
    """The cached lengths 1 and 2 equal the bounds of a sequence in the packed batch."""
    running = Running(made(decoder_only(position)), 2, seed=1)
    running.step([1, 2], seed=2)
    running.step([2, 3], seed=3)
    running.step([1, 4], seed=4)


def test_two_continuations_of_one_text_do_not_touch_each_other():
    running = Running(shared(decoder_only("learned")), 1, seed=0)
    running.step([4], seed=1)
    running.cache.reorder([0, 0, 0])
    running.keep([0, 0, 0])
    running.step([1, 2, 1], seed=2)
    assert not torch.equal(running.texts[0], running.texts[2])
    running.step([2, 1, 1], seed=3)


SEEN = chances(2, 6, 6, p=0.7) | torch.eye(6, dtype=torch.bool)
MASKS = {
    "band in every block": (Causal(), None, Band(2)),
    "window": (Causal(), Window(2), Everything()),
    "documents": (Causal(), Documents(torch.tensor([[0, 0, 1, 1, 1, 0], [0, 1, 0, 1, 0, 1]])), Everything()),
    "explicit": (Causal(), Explicit(SEEN), Everything()),
    "prefix model": (Everything(), Causal() | Prefix(torch.tensor([2, 3])), Everything()),
}


@pytest.mark.parametrize("chunks", [(3, 1, 1, 1), (4, 2), (3, 3)], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_masks_show_the_same_with_a_cache(mask, chunks):
    """Mask tensors cover complete sequences; each step uses its positions."""
    own, given_mask, of_block = MASKS[mask]
    network = shared(decoder_only("learned", mask=own, blocks=(replace(BLOCK, mask=of_block),)))
    tokens, cache = text(2, 6), network.new_cache()
    steps = [network(chunk, given_mask, cache).hidden for chunk in tokens.split(chunks, dim=1)]
    close(torch.cat(steps, dim=1), network(tokens, given_mask).hidden)


@pytest.mark.parametrize("position", POSITIONS)
def test_padded_steps_put_only_real_tokens_into_the_cache(position):
    network = shared(decoder_only(position))
    tokens, real = text(3, 8), chances(3, 8, seed=4, p=0.6)
    real[:, [0, 3, 6]] = True
    cache = network.new_cache()
    steps = [
        network(tokens[:, at], Padding(real[:, at]), cache).hidden for at in (slice(0, 3), slice(3, 6), slice(6, 8))
    ]
    found = torch.cat(steps, dim=1)
    assert cache.lengths == tuple(real.sum(dim=1).tolist())
    for row in range(3):
        close(found[row, real[row]], network(tokens[row, real[row]][None]).hidden[0])


def test_the_keys_of_the_source_are_made_once():
    network = made(encoder_decoder())
    calls = []
    for layer, block in enumerate(network.decoder.blocks):
        project = block.cross_attention.project
        real = project.key_value_heads
        project.key_value_heads = lambda hidden, layer=layer, real=real: (calls.append(layer), real(hidden))[1]
    source, cache = network.encode(text(2, 5)), network.new_cache()
    for step in range(4):
        network(source, text(2, 1, seed=step), cache=cache)
    assert calls == [0, 1, 2]


def test_the_encoder_does_not_run_again_when_its_output_is_given():
    network = made(encoder_decoder())
    source, target = text(2, 5), text(2, 3, seed=1)
    output = network(source, target)
    network.encoder.forward = None
    again = network(output.source, target)
    assert again.source is output.source
    assert torch.equal(again.hidden, output.hidden)


def test_the_cache_that_was_given_is_returned():
    network = shared(decoder_only())
    cache = network.new_cache()
    assert network(text(2, 3), cache=cache).cache is cache
    assert network(text(2, 3)).cache is None


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("batch", [1, 3])
def test_another_number_of_rows_than_the_cache_holds_is_an_error_that_says_so(position, batch):
    network = shared(decoder_only(position))
    cache = network.new_cache()
    network(text(2, 3), cache=cache)
    with pytest.raises(ValueError, match=f"the KV cache holds 2 sequences, but the batch has {batch}"):
        network(text(batch, 1), cache=cache)


def test_rows_are_added_only_to_a_cache_that_has_seen_tokens():
    network = shared(decoder_only())
    cache = network.new_cache()
    network(text(2, 3), cache=cache)
    for one, other in ((cache, network.new_cache()), (network.new_cache(), cache)):
        with pytest.raises(ValueError, match="only when both caches hold at least one token"):
            one.append_rows(other)


def test_when_the_last_texts_are_finished_the_cache_is_empty_and_others_may_enter():
    network = shared(decoder_only("rotary"))
    running = Running(network, 2, seed=0)
    running.step([3, 1], seed=1)
    running.cache.reorder([])
    running.keep([])
    assert running.cache.lengths == ()
    entering = Running(network, 2, seed=2)
    entering.step([1, 4], seed=3)
    running.add(entering)
    running.step([2, 1], seed=4)


def test_what_is_kept_is_what_was_given_row_by_row():
    cache, expected = LayerKVCache(), [([], [])] * 3
    assert cache.empty
    for turn, lengths in enumerate([(2, 1, 3), (1, 1, 1), (4, 1, 2)]):
        layout = BatchLayout.of(lengths)
        key, value = numbers(layout.num_tokens, 2, 5, seed=turn), numbers(layout.num_tokens, 2, 5, seed=50 + turn)
        cache.append(key, value, layout)
        expected = [
            ([*keys, one], [*values, other])
            for (keys, values), one, other in zip(expected, key.split(lengths), value.split(lengths), strict=True)
        ]
    assert cache.lengths == (7, 3, 6)
    assert cache.longest == 7
    for row, (keys, values) in enumerate(expected):
        key, value, filled = cache.view(slice(row, row + 1))
        assert filled == cache.lengths[row]
        assert torch.equal(key[0].transpose(0, 1), torch.cat(keys))
        assert torch.equal(value[0].transpose(0, 1), torch.cat(values))


def test_when_it_grows_it_no_longer_holds_what_left():
    """A single sequence that continues after all others are finished needs memory only for itself."""
    cache = made(decoder_only("learned", WORDS, layers=1)).new_cache()
    kept = cache.layers[0]
    kept.append(numbers(5, 2, 4), numbers(5, 2, 4, seed=1), BatchLayout.of([1, 2, 1, 1]))
    cache.reorder([1])
    before = kept.key[0, :, :2].clone()
    kept.append(numbers(1, 2, 4, seed=2), numbers(1, 2, 4, seed=3), BatchLayout.of([1]))
    assert len(kept.key) == len(kept.value) == 1
    assert torch.equal(kept.key[0, :, :2], before)
    assert torch.equal(kept.key[0, :, 2], numbers(1, 2, 4, seed=2)[0])


def test_a_new_cache_has_a_place_for_every_layer_and_no_rows():
    cache = shared(encoder_decoder()).new_cache()
    assert (len(cache.layers), len(cache.cross_layers), cache.lengths) == (3, 3, ())
    assert isinstance(cache, Cache)


ORDERS = [[0, 1, 2, 3], [0, 0, 2, 2], [1, 1, 3, 3], [1, 0, 2, 2], [3, 2, 1, 0], [2, 2], [0, 1, 2, 3, 3]]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_beams_that_stay_in_place_and_those_that_move_keep_their_own(order):
    """Copies in place and complete reordering: either way each row continues as if alone."""
    running = Running(shared(decoder_only("rotary")), 4, seed=0)
    running.step([2, 4, 1, 3], seed=1)
    running.cache.reorder(order)
    running.keep(order)
    running.step([1] * len(order), seed=2)
    running.step([2] * len(order), seed=3)


class Sharing:
    """Beams that share their source, and the complete tokens of each beam so far."""

    def __init__(self, network, lengths, seed, copies=3):
        self.network, self.cache, self.copies = network, network.new_cache(), copies
        self.sources = [text(length, seed=seed + length) for length in lengths]
        tokens, layout = packed(self.sources)
        self.source = network.encode(tokens, layout=layout)
        first = [text(2, seed=seed + number) for number in range(len(lengths))]
        tokens, layout = packed(first)
        network(self.source, tokens, target_layout=layout, cache=self.cache)
        self.cache.repeat_interleave(copies)
        self.source = self.source.repeat_interleave(copies)
        self.texts = [row for row in first for _ in range(copies)]

    def step(self, seed):
        new = [text(1, seed=seed + index) for index in range(len(self.texts))]
        self.texts = [torch.cat(pair) for pair in zip(self.texts, new, strict=True)]
        tokens, layout = packed(new)
        found = self.network(self.source, tokens, target_layout=layout, cache=self.cache).hidden
        for index, row in enumerate(self.texts):
            alone = self.network(self.sources[index // self.copies][None], row[None]).hidden[0, -1]
            close(found[index], alone)

    def keep(self, order):
        self.cache.reorder(order)
        self.texts = [self.texts[row] for row in order]
        numbers = [row // self.copies for row in order[:: self.copies]]
        self.source, self.sources = self.source.reorder(numbers), [self.sources[number] for number in numbers]

    def add(self, other):
        self.cache.append_rows(other.cache)
        self.source = self.source.append_rows(other.source)
        self.sources, self.texts = self.sources + other.sources, self.texts + other.texts


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_rows_that_share_a_source_are_as_if_each_had_its_own(position):
    """Beams are reordered within their source, a source is appended, others are dropped."""
    network = shared(encoder_decoder(position))
    running = Sharing(network, [4, 2], seed=10)
    running.step(seed=100)
    running.keep([2, 0, 0, 3, 5, 5])
    running.step(seed=200)
    running.add(Sharing(network, [3], seed=20))
    running.step(seed=300)
    running.keep([6, 7, 8, 0, 1, 2])
    running.step(seed=400)


def test_rows_that_share_a_source_cannot_be_torn_apart():
    network = shared(encoder_decoder())
    source, cache = network.encode(text(2, 5)), network.new_cache()
    network(source, text(2, 1), cache=cache)
    cache.repeat_interleave(2)
    for torn in ([0, 2, 1, 3], [0, 1, 2]):
        with pytest.raises(ValueError, match="2 adjacent rows share each source and must stay adjacent"):
            cache.reorder(torn)
    alone = network.new_cache()
    network(source, text(2, 1), cache=alone)
    with pytest.raises(ValueError, match="cannot append rows with 1 rows per source to a cache with 2"):
        cache.append_rows(alone)
    with pytest.raises(ValueError, match="cannot append an encoder output with 1 rows per source to one with 2"):
        source.repeat_interleave(2).append_rows(source)
    with pytest.raises(ValueError, match="4 source sequences but 2 target sequences"):
        network(source.repeat_interleave(2), text(2, 1))


@pytest.mark.parametrize("make", [decoder_only, encoder_decoder], ids=["decoder", "both"])
@torch.no_grad()
def test_only_the_last_token_of_each_row_is_scored(make):
    network = shared(make("rotary", WORDS))
    tokens, layout = packed([text(3, seed=1), text(1, seed=2), text(4, seed=3)])
    before = (network.encode(text(3, 2)),) if make is encoder_decoder else ()
    kwargs = {"target_layout" if before else "layout": layout}
    every = network(*before, tokens, **kwargs)
    last = network(*before, tokens, **kwargs, logits_at=LogitsAt.LAST)
    close(last.logits, every.logits[layout.last_indices])
    close(last.hidden, every.hidden)
