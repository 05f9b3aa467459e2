"""Weight tables: every line is used, every parameter has its place, and each way of writing a tensor has an inverse."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.checkpoint.folders import ARCHITECTURES, equal_bits, family_of, one_block, small

from regard.families.weight_map import AsRow, Entry, Interleaved, Place, Same, Transposed, TransposedTogether, places
from regard.transformer.network import empty

ARRANGEMENTS = [
    {},
    {"is_decoder": True, "add_cross_attention": True, "tie_word_embeddings": False},
    {"scale_attn_weights": True, "add_cross_attention": True},
    {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 53},
    {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
]
"""Changes of a config that change which parameters there are, for the families that have these keys."""


@functools.cache
def tables(architecture):
    """The networks of a class in all arrangements: its parameters, and the places of each line of the table."""
    family, found = family_of(architecture), []
    kind = family.architectures[architecture]
    for keys in ARRANGEMENTS:
        if not set(keys) <= set(family.keys):
            continue
        values = {**small(family), **one_block(architecture), **keys}
        network = empty(family.read(values, architecture)[0])
        names = [name for name, _ in network.named_parameters(remove_duplicate=False)]
        entries = (*family.weights(network.config), *kind.weights)
        found.append((network, {entry: places([entry], kind.base, names) for entry in entries}))
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_parameter_has_its_place_and_no_place_has_two(architecture):
    for network, table in tables(architecture):
        parameters, meant = dict(network.named_parameters(remove_duplicate=False)), {}
        for place in (place for spelt in table.values() for place in spelt):
            ours = [id(parameters[name]) for name in place.ours]
            assert meant.setdefault(place.theirs, ours) == ours, place
        placed = {one for ours in meant.values() for one in ours}
        assert [name for name, value in network.named_parameters() if id(value) not in placed] == []


def test_every_line_of_a_table_is_used():
    lines, used = set(), set()
    for architecture in ARCHITECTURES:
        for _, table in tables(architecture):
            lines |= set(table)
            used |= {entry for entry, spelt in table.items() if spelt}
    assert len(lines) > 100
    assert {f"{entry.theirs} -> {entry.ours}" for entry in lines - used} == set()


MATRICES = st.tuples(st.integers(1, 5), st.integers(1, 5))
SEEDS = st.integers(0, 1000)


def random(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(how=st.sampled_from([Same(), Transposed()]), shape=MATRICES | st.tuples(st.integers(1, 5)), seed=SEEDS)
def test_one_tensor_there_and_back(how, shape, seed):
    tensor = random(shape, seed)
    assert equal_bits(how.write(how.read(tensor, 1)), tensor)
    assert equal_bits(how.read(how.write([tensor]), 1)[0], tensor)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(parts=st.integers(1, 4), shape=MATRICES | st.tuples(st.integers(1, 5)), seed=SEEDS)
def test_several_tensors_there_and_back(parts, shape, seed):
    how, ours = TransposedTogether(), [random(shape, seed + i) for i in range(parts)]
    theirs = how.write(ours)
    assert theirs.shape == ((shape[-1], parts * shape[0]) if len(shape) == 2 else (parts * shape[0],))
    assert all(equal_bits(one, other) for one, other in zip(how.read(theirs, parts), ours, strict=True))
    assert equal_bits(how.write(how.read(theirs, parts)), theirs)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(size=st.integers(1, 9), seed=SEEDS)
def test_a_row_there_and_back(size, seed):
    vector = random((size,), seed)
    assert AsRow().write([vector]).shape == (1, size)
    assert equal_bits(AsRow().read(AsRow().write([vector]), 1)[0], vector)
    assert equal_bits(AsRow().write(AsRow().read(vector[None], 1)), vector[None])


@settings(derandomize=True, deadline=None, max_examples=30)
@given(heads=st.integers(1, 4), pairs=st.integers(1, 4), columns=st.none() | st.integers(1, 5), seed=SEEDS)
def test_pairs_there_and_back(heads, pairs, columns, seed):
    how, size = Interleaved(heads), (2 * heads * pairs,)
    tensor = random(size if columns is None else (*size, columns), seed)
    assert equal_bits(how.write(how.read(tensor, 1)), tensor)
    assert equal_bits(how.read(how.write([tensor]), 1)[0], tensor)


def test_pairs_become_halves_in_each_head():
    assert Interleaved(2).read(torch.arange(12), 1)[0].tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]


def test_rows_and_columns_are_exchanged():
    (ours,) = Transposed().read(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), 1)
    assert ours.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert [part.tolist() for part in TransposedTogether().read(torch.tensor([[1.0, 2.0, 3.0]]), 3)] == [
        [[1]],
        [[2]],
        [[3]],
    ]


def test_a_line_is_spelt_out_for_every_block_and_every_tensor():
    entry = Entry("@h.#.mlp", "blocks.#.up", Transposed())
    ours = ["blocks.0.up.weight", "blocks.0.up.bias", "blocks.11.up.weight", "blocks.0.down.weight", "up.weight"]
    assert places([entry], "model.", ours) == [
        Place("model.h.0.mlp.weight", ("blocks.0.up.weight",), Transposed()),
        Place("model.h.0.mlp.bias", ("blocks.0.up.bias",), Transposed()),
        Place("model.h.11.mlp.weight", ("blocks.11.up.weight",), Transposed()),
    ]


def test_a_line_with_several_parts_is_spelt_out_once():
    entry = Entry("h.#.qkv", ("b.#.q", "b.#.k"), TransposedTogether())
    ours = ["b.3.q.weight", "b.3.k.weight"]
    assert places([entry], "", ours) == [
        Place("h.3.qkv.weight", ("b.3.q.weight", "b.3.k.weight"), TransposedTogether())
    ]


@pytest.mark.parametrize(
    "name", ["blocks.x.up.weight", "blocks.up.weight", "blocks.1.2.up.weight", "blocks.1.upper.weight"]
)
def test_only_numbers_stand_for_numbers(name):
    assert places([Entry("h.#", "blocks.#.up")], "", [name]) == []


def test_an_exact_line_is_one_tensor():
    entry = Entry("final_logits_bias", "head.bias", AsRow(), exact=True)
    assert places([entry], "model.", ["head.bias", "head.bias.weight"]) == [
        Place("final_logits_bias", ("head.bias",), AsRow())
    ]
