from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.reference_network import ReferenceNetwork, dense, rotate
from unit.transformer.small_networks import (
    ATTENTION,
    MODEL,
    POSITIONS,
    SEGMENTS,
    apart,
    chances,
    close,
    decoder_only,
    encoder_decoder,
    encoder_only,
    examples,
    few,
    gradients,
    numbers,
    randomized,
    shared,
    text,
)

from regard.transformer import config
from regard.transformer.attention import AttentionContext, EncoderOutput, MultiHeadAttention
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.mask import Band, Causal, Documents, Everything, Explicit, Prefix, Window
from regard.transformer.position import Rotary

LENGTHS = (4, 4, 1, 6, 2)
SOURCE_LENGTHS = (3, 3, 5, 2, 1)
LONGEST = max(LENGTHS)
DOCUMENTS = text(len(LENGTHS), LONGEST, kinds=2)
SEEN = chances(len(LENGTHS), LONGEST, LONGEST)
PREFIX = torch.tensor([2, 0, 1, 3, 2])

PLAIN = ReferenceNetwork(shared(decoder_only()))

# Each mask, and its dense definition for a sequence of n tokens.
MASKS = {
    "everything": (Everything(), lambda row, n: dense(Everything(), n)),
    "causal": (Causal(), lambda row, n: dense(Causal(), n)),
    "window": (Window(1), lambda row, n: dense(Window(1), n)),
    "band": (Causal() & Band(2), lambda row, n: dense(Band(2), n)),
    "documents": (Documents(DOCUMENTS), lambda row, n: DOCUMENTS[row, :n, None] == DOCUMENTS[row, None, :n]),
    "explicit": (Explicit(SEEN), lambda row, n: SEEN[row, :n, :n]),
    "prefix": (Prefix(PREFIX), lambda row, n: (torch.arange(n) < PREFIX[row]).expand(n, n)),
    "prefix model": (Causal() | Prefix(PREFIX), lambda row, n: dense(Causal(), n) | (torch.arange(n) < PREFIX[row])),
}


def attention(padded, **changes):
    """An attention with random parameters, on the CPU path (packed) or on the GPU path (padded)."""
    module = randomized(MultiHeadAttention(replace(ATTENTION, **changes), MODEL))
    if padded:
        module._attend_packed = module._attend_padded
    return module


def check(module, found, expected, *inputs):
    close(found, expected, 1e-11)
    inputs = [*inputs, *module.parameters()]
    for mine, theirs in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(mine, theirs, 1e-10)


@pytest.mark.parametrize("padded", [False, True], ids=["rowwise", "padded"])
@pytest.mark.parametrize("bias", [None, 1, len(LENGTHS)])
@pytest.mark.parametrize("mask", MASKS)
def test_a_row_attends_to_itself_as_if_alone(mask, bias, padded):
    """Sequences of different lengths, every mask, and an additive bias for all sequences or for each."""
    module, layout = attention(padded), BatchLayout.of(LENGTHS)
    x = numbers(layout.num_tokens, MODEL).requires_grad_()
    added = None if bias is None else numbers(bias, 4, LONGEST, LONGEST, seed=1).requires_grad_()
    found = module(x, AttentionContext(layout, MASKS[mask][0], position=added))
    expected = []
    for row, (alone, n) in enumerate(zip(x.split(LENGTHS), LENGTHS, strict=True)):
        own = None if added is None else added[row % bias, :, :n, :n]
        expected.append(PLAIN.attended(ATTENTION, module, alone, alone, MASKS[mask][1](row, n), bias=own))
    check(module, found, torch.cat(expected), *([x] if added is None else [x, added]))


@pytest.mark.parametrize("padded", [False, True], ids=["rowwise", "padded"])
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    mask=st.sampled_from([Everything(), Causal(), Window(1)]),
)
@few
def test_rows_of_any_lengths_turned_by_their_positions(padded, lengths, mask):
    module, layout = attention(padded), BatchLayout.of(lengths)
    x = numbers(layout.num_tokens, MODEL).requires_grad_()
    rotary = Rotary(config.Rotary(base=50.0, length=9, stretch=None), ATTENTION.head_dim)
    found = module(x, AttentionContext(layout, mask, position=rotary(layout, torch.float64)))
    expected = [
        PLAIN.attended(ATTENTION, module, row, row, dense(mask, len(row)), turn=lambda x: rotate(x, 50.0))
        for row in x.split(lengths)
    ]
    check(module, found, torch.cat(expected), x)


@pytest.mark.parametrize("padded", [False, True], ids=["rowwise", "padded"])
@pytest.mark.parametrize("lengths", [(LENGTHS, SOURCE_LENGTHS), ((3, 3), (5, 2)), ((2, 4), (3, 3)), ((2, 2), (3, 3))])
def test_across_each_row_attends_to_its_own_source(lengths, padded):
    module = attention(padded)
    layout, source_layout = (BatchLayout.of(side) for side in lengths)
    x, y = (
        numbers(layout.num_tokens, MODEL).requires_grad_(),
        numbers(source_layout.num_tokens, MODEL, seed=1).requires_grad_(),
    )
    found = module(x, AttentionContext(layout, Causal()), EncoderOutput(y, source_layout))
    pairs = zip(x.split(lengths[0]), y.split(lengths[1]), strict=True)
    expected = [PLAIN.attended(ATTENTION, module, one, other) for one, other in pairs]
    check(module, found, torch.cat(expected), x, y)


@pytest.mark.parametrize("padded", [False, True], ids=["rowwise", "padded"])
@pytest.mark.parametrize("mask", [Causal(), Window(1), Band(2)], ids=str)
def test_masks_that_compare_positions_do_not_mind_where_a_row_starts(mask, padded):
    module, x = attention(padded), numbers(sum(LENGTHS), MODEL)
    later = BatchLayout.of(LENGTHS, starts=(2, 0, 5, 1, 3))
    close(module(x, AttentionContext(later, mask)), module(x, AttentionContext(BatchLayout.of(LENGTHS), mask)))


@pytest.mark.parametrize("bias", [True, False])
def test_biases_are_there_where_the_config_says(bias):
    module = attention(padded=False, bias=bias, output_bias=not bias)
    assert {name for name, _ in module.named_parameters() if name.endswith("bias")} == (
        {"project.query.bias", "project.key.bias", "project.value.bias"} if bias else {"output.bias"}
    )


def test_grouped_heads_are_many_heads_whose_keys_and_values_repeat():
    grouped, many = attention(False, key_value_heads=2), attention(False, key_value_heads=4)
    with torch.no_grad():
        for name, value in grouped.named_parameters():
            if name.startswith(("project.key", "project.value")):
                value = value.unflatten(0, (2, -1)).repeat_interleave(2, dim=0).flatten(0, 1)
            many.get_parameter(name).copy_(value)
    x, layout = numbers(7, MODEL), BatchLayout.of([4, 3])
    for mask in (Everything(), Causal(), Window(1)):
        close(grouped(x, AttentionContext(layout, mask)), many(x, AttentionContext(layout, mask)), 1e-12)


def test_heads_must_divide_evenly():
    with pytest.raises(ValueError, match=r"heads \(4\) must be a multiple of key_value_heads \(3\)"):
        MultiHeadAttention(replace(ATTENTION, key_value_heads=3), MODEL)


@given(seed=st.integers(0, 999), length=st.integers(1, 7))
@few
def test_without_positions_an_encoder_does_not_know_the_order_of_its_tokens(seed, length):
    network = shared(encoder_only())
    tokens, segments = text(1, length, seed=seed), text(1, length, seed=seed + 1, kinds=SEGMENTS)
    order = numbers(length, seed=seed).argsort()
    shuffled = network(tokens[:, order], segments=segments[:, order]).hidden
    close(shuffled, network(tokens, segments=segments).hidden[:, order])


@pytest.mark.parametrize("position", POSITIONS[1:])
def test_with_any_kind_of_position_it_does(position):
    network, tokens, order = shared(encoder_only(position)), torch.arange(6)[None], [1, 0, 2, 3, 4, 5]
    assert apart(network(tokens[:, order]).hidden, network(tokens).hidden[:, order]).max() > 1e-3


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", ["decoder", "both"])
@given(seed=st.integers(0, 999), at=st.integers(0, 6))
@examples(4)
@torch.no_grad()
def test_the_future_changes_nothing_before_it_and_everything_after(position, kind, seed, at):
    network = shared(decoder_only(position) if kind == "decoder" else encoder_decoder(position))
    tokens = text(2, 7, seed=seed)
    changed = tokens.clone()
    changed[1, at] = (tokens[1, at] + 1) % 23

    def run(tokens):
        return (network(tokens) if kind == "decoder" else network(text(2, 4, seed=seed), tokens)).hidden

    difference = apart(run(changed), run(tokens))
    assert float(difference[0].max()) == 0
    assert float(difference[1, :at].max() if at else 0) < 1e-12
    assert float(difference[1, at:].min()) > 1e-7


@pytest.mark.parametrize("position", POSITIONS)
def test_a_source_is_seen_by_every_token_of_its_own_row_and_by_no_other(position):
    network = shared(encoder_decoder(position))
    source, target = text(3, 5), text(3, 4, seed=1)
    changed = source.clone()
    changed[1, 4] = (source[1, 4] + 1) % 23
    difference = apart(network(changed, target).hidden, network(source, target).hidden)
    assert float(difference[[0, 2]].max()) == 0
    assert float(difference[1].min()) > 1e-7
