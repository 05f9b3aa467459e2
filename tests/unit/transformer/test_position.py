import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.reference_network import ReferenceNetwork, rotate, sinusoid
from unit.transformer.small_networks import (
    ATTENTION,
    BLOCK,
    POSITIONS,
    close,
    decoder_only,
    examples,
    few,
    made,
    many,
    numbers,
    packed,
    randomized,
    shared,
    text,
)

from regard.transformer import config
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import Layout
from regard.transformer.position import ALiBi, Learned, RelativeBuckets, Rotary, Sinusoidal

ROWS = BatchLayout.of([3, 5, 1], starts=[2, 0, 700])


@pytest.mark.parametrize("dim", [1, 2, 7, 10])
@pytest.mark.parametrize("layout", Layout)
def test_sinusoidal_is_the_formula_of_the_paper_at_every_position(layout, dim):
    found = Sinusoidal(config.Sinusoidal(layout=layout, length=5), dim)(ROWS, torch.float64)
    expected = torch.tensor([sinusoid(layout, at, dim) for at in ROWS.positions.tolist()], dtype=torch.float64)
    close(found, expected, 1e-12)


def test_sinusoidal_is_computed_in_float64_and_rounded_last():
    """At position 100,000 an angle in float32 is wrong in its third digit."""
    layout = BatchLayout.of([1], starts=[100_000])
    part = Sinusoidal(config.Sinusoidal(layout=Layout.HALVES, length=5), 8)
    assert torch.equal(part(layout, torch.float32), part(layout, torch.float64).float())


def test_learned_takes_the_vector_of_the_position_behind_the_offset():
    part = randomized(Learned(config.Learned(length=701, offset=2), dim=7))
    assert part.weight.shape == (703, 7)
    expected = torch.stack([part.weight[at + 2] for at in ROWS.positions.tolist()])
    assert torch.equal(part(ROWS, torch.float64), expected)


def rotary(stretch=None, base=50.0, head_dim=6):
    return Rotary(config.Rotary(base=base, length=5, stretch=stretch), head_dim)


STRETCHES = [
    None,
    config.LinearStretch(factor=3.0),
    config.LlamaStretch(factor=8.0, low_frequency=1.0, high_frequency=4.0, original_length=24),
]


@pytest.mark.parametrize("stretch", STRETCHES, ids=["plain", "linear", "llama"])
@given(query=st.integers(0, 500), key=st.integers(0, 500), shift=st.integers(0, 9000), seed=st.integers(0, 99))
@few
def test_rotary_products_depend_on_the_distance_alone_and_lengths_are_kept(stretch, query, key, shift, seed):
    part, x, y = rotary(stretch), numbers(1, 3, 6, seed=seed), numbers(1, 3, 6, seed=seed + 1)

    def at(position, x):
        return part(BatchLayout.of([1], starts=[position]), torch.float64).rotate(x)

    product = (at(query, x) * at(key, y)).sum(-1)
    close((at(query + shift, x) * at(key + shift, y)).sum(-1), product, 1e-9)
    close(at(query, x).norm(dim=-1), x.norm(dim=-1), 1e-12)


def test_rotary_turns_each_token_by_its_position_in_its_row():
    x = numbers(ROWS.num_tokens, 3, 6)
    found = rotary()(ROWS, torch.float64).rotate(x)
    for token, position in enumerate(ROWS.positions.tolist()):
        alone = x[token].expand(position + 1, -1, -1)
        close(found[token], rotate(alone, 50.0)[position], 1e-11)


def test_rotary_at_the_first_position_changes_nothing_and_later_does():
    x = numbers(2, 3, 6)
    found = rotary()(BatchLayout.of([2]), torch.float64).rotate(x)
    assert torch.equal(found[0], x[0])
    assert (found[1] - x[1]).abs().max() > 0.1


def test_linear_stretch_divides_every_frequency():
    close(rotary(STRETCHES[1]).scaled_frequencies(), rotary().scaled_frequencies() / 3, 1e-15)
    close(
        rotary().scaled_frequencies(),
        torch.tensor([50.0 ** (-2 * i / 6) for i in range(3)], dtype=torch.float64),
        1e-15,
    )


@given(
    factor=st.floats(1.5, 32),
    low=st.floats(0.5, 3),
    width=st.floats(0.5, 10),
    length=st.integers(8, 10_000),
    base=st.floats(50, 1e6),
)
@many
def test_llama_stretch_keeps_fast_waves_slows_slow_ones_and_blends_between(factor, low, width, length, base):
    stretch = config.LlamaStretch(factor=factor, low_frequency=low, high_frequency=low + width, original_length=length)
    expected = []
    for speed in rotary(base=base, head_dim=32).scaled_frequencies().tolist():
        wave = 2 * math.pi / speed
        if wave < length / (low + width):
            expected.append(speed)
        elif wave > length / low:
            expected.append(speed / factor)
        else:
            smooth = (length / wave - low) / width
            expected.append((1 - smooth) * speed / factor + smooth * speed)
    close(rotary(stretch, base, 32).scaled_frequencies(), torch.tensor(expected, dtype=torch.float64), 1e-12)


def test_stretches_are_those_of_transformers():
    """transformers computes them in float32."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    linear = dict(rope_type="linear", factor=3.0)
    llama = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
    for stretch, theirs in zip(STRETCHES[1:], (linear, llama), strict=True):
        rope = {"rope_theta": 500.0, "original_max_position_embeddings": 24, **theirs}
        design = LlamaConfig(hidden_size=64, num_attention_heads=2, max_position_embeddings=96, rope_parameters=rope)
        speed, factor = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](design, torch.device("cpu"))
        assert factor == 1
        close(rotary(stretch, 500.0, 32).scaled_frequencies().float(), speed, 1e-6)


def test_buckets_are_those_of_transformers():
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-300, 301)
    for bidirectional, (buckets, distance) in product([True, False], [(32, 128), (8, 9), (6, 5), (20, 64), (64, 256)]):
        part = RelativeBuckets(config.RelativeBuckets(buckets=buckets, distance=distance), 4, bidirectional)
        theirs = T5Attention._relative_position_bucket(distances, bidirectional, buckets, distance)
        assert torch.equal(part.bucket(distances), theirs), (bidirectional, buckets, distance)


def test_the_bias_of_buckets_is_the_number_of_the_distance_for_each_head():
    part = randomized(RelativeBuckets(config.RelativeBuckets(buckets=8, distance=9), 3, bidirectional=True))
    query, key = text(2, 4, kinds=30), text(2, 5, seed=1, kinds=30)
    bias = part(query, key)
    for row, head, q, k in torch.cartesian_prod(*map(torch.arange, (2, 3, 4, 5))).tolist():
        bucket = part.bucket(key[row, k] - query[row, q])
        assert bias[row, head, q, k] == part.weight[bucket, head]


PAPER = {
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    8: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256],
    12: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
    16: [2 ** (-(i + 1) / 2) for i in range(16)],
    1: [2**-8],
}


@pytest.mark.parametrize("heads", PAPER)
def test_alibi_slopes_are_those_of_the_paper(heads):
    close(ALiBi(heads).slopes(), torch.tensor(PAPER[heads], dtype=torch.float64), 1e-15)


def test_alibi_takes_slope_times_distance_off():
    query, key = text(2, 4, kinds=30), text(2, 5, seed=1, kinds=30)
    bias = ALiBi(8)(query, key)
    for row, head, q, k in torch.cartesian_prod(*map(torch.arange, (2, 8, 4, 5))).tolist():
        assert bias[row, head, q, k].item() == -(2.0 ** -(head + 1)) * abs(int(query[row, q]) - int(key[row, k]))


def test_alibi_is_exact_in_a_network_of_float64():
    attention = replace(ATTENTION, heads=16)
    network = made(decoder_only("alibi", blocks=(replace(BLOCK, attention=attention),)))
    tokens = text(9)
    close(network(tokens[None]).hidden[0], ReferenceNetwork(network).hidden(tokens))


@pytest.mark.parametrize("position", POSITIONS)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4), seed=st.integers(0, 99)
)
@examples(3)
@torch.no_grad()
def test_with_a_cache_each_row_continues_at_its_own_position(position, lengths, seed):
    network = shared(decoder_only(position))
    texts = [text(before + after, seed=seed + row) for row, (before, after) in enumerate(lengths)]
    cache = network.new_cache()
    first, layout = packed([row[:before] for row, (before, _) in zip(texts, lengths, strict=True)])
    network(first, layout=layout, cache=cache)
    rest, layout = packed([row[before:] for row, (before, _) in zip(texts, lengths, strict=True)])
    found = network(rest, layout=layout, cache=cache).hidden
    full = torch.cat([network(row[None]).hidden[0, before:] for row, (before, _) in zip(texts, lengths, strict=True)])
    close(found, full)
